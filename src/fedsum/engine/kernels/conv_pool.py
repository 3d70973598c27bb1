"""Convolution, dropout, ReLU and max pool of a whole cohort, each client with its own filters, in one kernel each way.

torch runs such a cohort as a grouped convolution, client by client and without tensor cores, and writes the large image
before the pool to memory some six times a step. Here it never gets there: of each pooled pixel only the value is kept
and which of its four pixels it came from.

The kernels are in `convolution_kernels.py`.
"""

# mypy: allow-untyped-calls
from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from . import convolution_kernels

_WHOLE = 4
"""patches of so many channels are one operand; those of more are taken pixel by pixel"""
_SHARES = {1: 13, 6: 2}
"""of a client's pixels, by how many pieces the filters come in: with 20 clients, two programs a multiprocessor"""

# How many pooled pixels a program takes, its warps and stages; by trial on an H200, with cohorts of the paper's size.
FORWARD = (128, 4, 3)
DROPPING = (128, 8, 3)
FILTERS = (128, 4, 1)
IMAGE = (64, 4, 1)
_NUMBERS = 1024
"""what a program takes where it goes through numbers one by one"""


@dataclass(frozen=True)
class Scaled:
    """Numbers of a cohort as factors."""

    factors: Tensor
    """float16, channels innermost and filled up with zeros"""
    unit: Tensor
    """of each client: what a factor of one is worth"""
    most: Tensor
    """of each client: the largest number, and not zero"""


@dataclass(frozen=True)
class Framed:
    """Images of a whole data set, each within a frame of zeros, at least one pixel wide."""

    images: Scaled
    """[n, H + 2, W + 2 or more, channels]"""
    width: int
    """of an image without its frame"""
    numbers: Tensor | None = None
    """which of them each client has, [C, B]"""

    @classmethod
    def of(cls, values: Tensor) -> "Framed":
        """From torch's order, [C, B, channels, H, W], each client's by its own unit."""
        values = values.contiguous()
        most = _largest(values)
        numbers = torch.arange(values.shape[0] * values.shape[1], device=values.device).view(values.shape[:2])
        images = _framed(values.flatten(0, 1), most, most.repeat_interleave(values.shape[1]))
        return cls(images, values.shape[-1], numbers)

    @classmethod
    def all_of(cls, values: Tensor) -> "Framed":
        """From torch's order, [n, channels, H, W], by one unit."""
        most = _largest(values.contiguous()[None])
        return cls(_framed(values, most, most.expand(len(values))), values.shape[-1])

    def of_clients(self, numbers: Tensor) -> "Framed":
        """What each client has, [C, B]."""
        unit, most = (each.expand(len(numbers)).contiguous() for each in (self.images.unit, self.images.most))
        return Framed(Scaled(self.images.factors, unit, most), self.width, numbers)


@dataclass(frozen=True)
class Kept:
    """What goes back needs of what went forward."""

    images: Framed | Scaled
    taps: Tensor
    strength: Tensor
    code: Tensor
    drop: float


def forward(
    images: Framed | Scaled,
    weight: Tensor,
    bias: Tensor,
    seed: Tensor | None = None,
    drop: float = 0.0,
    *,
    last: bool = True,
) -> tuple[Tensor | Scaled, Kept]:
    """Convolution with filters [C, outs, ins, 3, 3], dropout, ReLU, max pool, of factors with ten bits.

    Args:
      images: in a frame, or [C, B, H, W, channels] as they come from here.
      weight: each client's filters in one piece.
      seed: of the dropout, one number on the device.
      last: for torch to go on with, [C, B, outs, H/2, W/2] in float32; else for another `forward`.
    """
    at = _Layout.of(images)
    clients, batch, height, width = at.shape
    outs = bias.shape[1]
    OUT, pixels = max(16, _power_of_two(outs)), batch * (height // 2) * (width // 2)
    if max(pixels * OUT, batch * at.strides[1]) >= 2**31:
        raise ValueError(
            f"{batch} images of {at.channels}x{height}x{width} to {OUT} channels: more than 2^31 numbers a client"
        )
    spread, taps, strength = _spread(weight, at.channels, OUT)
    shape = (clients, batch, height // 2, width // 2)
    code, top, unit = weight.new_empty(*shape, OUT, dtype=torch.int8), _tiny(weight), weight.new_empty(clients)
    if last:
        pooled = weight.new_empty(*shape[:2], outs, *shape[2:])
    else:
        pooled = weight.new_empty(*shape, OUT, dtype=torch.float16)
    tile, warps, stages = DROPPING if drop else FORWARD
    tile = tile if OUT < 64 else tile // 2
    convolution_kernels.forward[(triton.cdiv(pixels, tile), clients)](
        at.factors, at.numbers, spread, bias, seed, at.unit, at.most, strength, pooled, code, top, unit,
        pixels, height, width, *at.strides, batch, bias.stride(0), outs, 1 - drop,
        at.channels, OUT, tile, at.numbers is not None, at.channels <= _WHOLE, last, drop > 0, stages,
        num_warps=warps,
    )  # fmt: skip
    kept = Kept(images, taps, strength, code, drop)
    return pooled if last else Scaled(pooled, unit, top.view(torch.float32)), kept


def backward(kept: Kept, slope: Tensor | Scaled, to_weight: Tensor, to_bias: Tensor, to_images: bool) -> Scaled | None:
    """From the slope of what `forward` gave, those of filters and biases to where they belong, and of the images."""
    if isinstance(slope, Tensor):
        slope = _steep(slope.contiguous(), kept.code)
    _filter_gradient(kept, slope, to_weight, to_bias)
    return _image_gradient(kept, slope) if to_images else None


def as_torch_has_them(slope: Scaled, channels: int) -> Tensor:
    """[C, B, channels, H, W] in float32."""
    values = slope.factors[..., :channels].permute(0, 1, 4, 2, 3)
    return values.float() * slope.unit.view(-1, 1, 1, 1, 1)


@dataclass(frozen=True)
class _Layout:
    """Where the kernels find images."""

    factors: Tensor
    numbers: Tensor | None
    unit: Tensor
    most: Tensor
    shape: tuple[int, int, int, int]
    """clients, batch, height and width of an image without its frame"""
    channels: int
    strides: tuple[int, int, int]
    """of a client, an image and a row"""

    @classmethod
    def of(cls, images: Framed | Scaled) -> "_Layout":
        if isinstance(images, Framed):
            assert images.numbers is not None
            numbers, scaled = images.numbers.contiguous(), images.images
            _, height, _, channels = scaled.factors.shape
            clients, batch = numbers.shape
            shape, s_client = (clients, batch, height - 2, images.width), 0
            s_image, s_row = scaled.factors.stride()[:2]
        else:
            numbers, scaled = None, images
            *_, channels = scaled.factors.shape
            clients, batch, height, width = scaled.factors.shape[:4]
            shape = (clients, batch, height, width)
            s_client, s_image, s_row = scaled.factors.stride()[:3]
        return cls(scaled.factors, numbers, scaled.unit, scaled.most, shape, channels, (s_client, s_image, s_row))


def _framed(values: Tensor, most: Tensor, of_each: Tensor) -> Scaled:
    """Images [n, channels, H, W], each by the unit that goes with the largest number `of_each`."""
    n, channels, height, width = values.shape
    IN = _power_of_two(channels)
    if IN > _WHOLE:
        IN = max(16, IN)
    # Rows of a multiple of 16 numbers are read in wide words.
    framed = values.new_zeros(n, height + 2, width + 2 + -(width + 2) % max(1, 16 // IN), IN, dtype=torch.float16)
    framed[:, 1:-1, 1 : width + 1, :channels] = (values / _unit(of_each).view(-1, 1, 1, 1)).permute(0, 2, 3, 1)
    return Scaled(framed, _unit(most), most)


def _unit(most: Tensor) -> Tensor:
    """As the kernels have it: a power of two that brings numbers not above `most` below 2^15."""
    bits = most.clamp(2.0**-100, 2.0**126).view(torch.int32) & 0x7F800000
    return bits.view(torch.float32) / 16384


def _tiny(values: Tensor) -> Tensor:
    """The bits of the smallest number of each client that can be divided by, to find a larger one."""
    return torch.full((len(values),), convolution_kernels.TINY, dtype=torch.int32, device=values.device)


def _largest(values: Tensor) -> Tensor:
    """Of each client, and not zero."""
    most, numbers = _tiny(values), values[0].numel()
    convolution_kernels.largest[(triton.cdiv(numbers, 4 * _NUMBERS), len(values))](values, most, numbers, 4 * _NUMBERS)
    return most.view(torch.float32)


def _steep(slope: Tensor, code: Tensor) -> Scaled:
    """A slope from torch, [C, B, outs, H, W], of which only what ReLU lets pass counts."""
    clients, batch, outs, rows, columns = slope.shape
    numbers, OUT = slope[0].numel(), code.shape[-1]
    top, factors, unit = _tiny(slope), torch.empty_like(code, dtype=torch.float16), slope.new_empty(clients)
    convolution_kernels.steepest[(triton.cdiv(numbers, 4 * _NUMBERS), clients)](
        slope, code, top, numbers, outs, rows * columns, OUT, 4 * _NUMBERS
    )
    most, tile, pixels = top.view(torch.float32), 2 * _NUMBERS // OUT, batch * rows * columns
    convolution_kernels.as_factors[(triton.cdiv(pixels, tile), clients)](
        slope, code, most, factors, unit, pixels, outs, rows * columns, OUT, tile
    )
    return Scaled(factors, unit, most)


def _spread(weight: Tensor, IN: int, OUT: int) -> tuple[Tensor, Tensor, Tensor]:
    """Filters as the kernels read them, going forward and back, and the largest of each client."""
    clients, outs, ins = weight.shape[:3]
    strength = weight.new_empty(clients, dtype=torch.int32)
    numbers, block = 9 * ins * outs, 4 * _NUMBERS
    convolution_kernels.strongest[(clients,)](
        weight, strength, weight.stride(0), numbers, triton.cdiv(numbers, block), block
    )
    wide, taps = (weight.new_empty(clients, taps, IN, OUT, dtype=torch.float16) for taps in (64, 9))
    convolution_kernels.spread[(triton.cdiv(64 * IN * OUT, _NUMBERS), clients)](
        weight, strength.view(torch.float32), wide, taps, weight.stride(0), ins, outs, IN, OUT, _NUMBERS
    )
    return wide, taps, strength.view(torch.float32)


def _filter_gradient(kept: Kept, slope: Scaled, to_weight: Tensor, to_bias: Tensor) -> None:
    at, OUT = _Layout.of(kept.images), kept.code.shape[-1]
    (clients, batch, height, width), IN, outs = at.shape, at.channels, to_bias.shape[1]
    pixels, pieces = batch * (height // 2) * (width // 2), 1 if IN <= _WHOLE else 6
    shares, strip = _SHARES[pieces], 16 if pieces == 1 else 4
    tile, warps, stages = FILTERS
    filters, biases = (to_bias.new_empty(clients, shares, numbers) for numbers in (64 * IN * OUT, OUT))
    convolution_kernels.filter_gradient[(shares, clients, pieces)](
        at.factors, at.numbers, kept.code, slope.factors, at.unit, slope.unit, filters, biases,
        pixels, height, width, *at.strides, batch, 1 - kept.drop,
        IN, OUT, tile, strip, triton.cdiv(pixels, tile * shares), at.numbers is not None,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    tile = _NUMBERS // 4
    convolution_kernels.gathered[(triton.cdiv(9 * IN * OUT, tile), clients)](
        filters, biases, to_weight, to_bias,
        to_weight.stride(0), to_bias.stride(0), to_weight.shape[2], outs, IN, OUT, shares, tile,
    )  # fmt: skip


def _image_gradient(kept: Kept, slope: Scaled) -> Scaled:
    clients, batch, rows, columns, OUT = kept.code.shape
    IN, pixels = kept.taps.shape[-2], batch * rows * columns
    factors = slope.factors.new_empty(clients, batch, 2 * rows, 2 * columns, IN)
    top, unit = _tiny(kept.code), slope.unit.new_empty(clients)
    tile, warps, stages = IMAGE
    convolution_kernels.image_gradient[(triton.cdiv(pixels, tile), clients)](
        kept.taps, kept.code, slope.factors, slope.unit, slope.most, kept.strength, factors, top, unit,
        pixels, 2 * rows, 2 * columns, 1 - kept.drop,
        IN, max(16, IN), OUT, tile,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return Scaled(factors, unit, top.view(torch.float32))


def _power_of_two(numbers: int) -> int:
    return int(triton.next_power_of_2(numbers))
