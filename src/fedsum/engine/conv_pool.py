"""Convolution, dropout, ReLU and max pool of a whole cohort, each client with its own filters, in one kernel each way.

torch runs such a cohort as a grouped convolution, client by client and without tensor cores, and writes the large image
before the pool to memory some six times a step. Here it never gets there: of each pooled pixel only the value is kept
and which of its four pixels it came from.

The kernels are in `kernels.py`.
"""

# mypy: allow-untyped-calls
from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from . import kernels

_WHOLE = 64
"""patches of at most so many numbers are one operand; larger ones are taken pixel by pixel"""
_SHARES = {1: 26, 6: 4}
"""of a client's pixels, by how many pieces the filters come in: with 20 clients, four programs a multiprocessor"""

# How many pooled pixels a program takes, its warps and stages: the best of a few tried on an H200.
FORWARD = FILTERS = (128, 4, 1)
IMAGE = (64, 4, 1)
_NUMBERS = 1024
"""what a program takes where it goes through numbers one by one"""


@dataclass(frozen=True)
class Images:
    """Of a cohort, [C, B, H, W, channels], in any order of memory."""

    pixels: Tensor
    largest: Tensor
    """number of each client, and not zero"""

    @classmethod
    def of(cls, values: Tensor) -> "Images":
        """From torch's order, [C, B, channels, H, W]."""
        values = values.contiguous()
        return cls(values.permute(0, 1, 3, 4, 2), _largest(values))


@dataclass(frozen=True)
class Kept:
    """What goes back needs of what went forward."""

    images: Images
    taps: Tensor
    strength: Tensor
    code: Tensor
    drop: float


def forward(
    images: Images, weight: Tensor, bias: Tensor, seed: Tensor | None = None, drop: float = 0.0
) -> tuple[Images, Kept]:
    """Convolution with filters [C, outs, ins, 3, 3], dropout, ReLU, max pool, of factors with ten bits.

    Args:
      images: they may have more channels than the filters, which do not see the others.
      weight: each client's filters in one piece.
      seed: of the dropout, one number on the device.

    Returns:
      Images whose channels are innermost, a multiple of 16 with zeros at the end: memory is read in wide words.
    """
    pixels = images.pixels
    clients, batch, height, width, ins = pixels.shape
    real = bias.shape[1]
    outs, pooled_pixels = real + -real % 16, batch * (height // 2) * (width // 2)
    if max(pooled_pixels * outs, pixels[0].numel()) >= 2**31:
        raise ValueError(
            f"{batch} images of {ins}x{height}x{width} to {outs} channels: more than 2^31 numbers a client"
        )
    spread, taps, strength = _spread(weight, ins, outs)
    pooled = pixels.new_empty(clients, batch, height // 2, width // 2, outs)
    code, top = torch.empty_like(pooled, dtype=torch.int8), _tiny(pixels)
    whole = 16 * ins <= _WHOLE
    tile, warps, stages = FORWARD
    kernels.forward[(triton.cdiv(pooled_pixels, tile), clients)](
        pixels, spread, bias, seed, images.largest, strength, pooled, code, top,
        pooled_pixels, height, width, *pixels.stride(), bias.stride(0), real, 1 - drop,
        ins, _block(16 * ins if whole else ins), outs, _block(outs), tile, whole, drop > 0,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return Images(pooled, top.view(torch.float32)), Kept(images, taps, strength, code, drop)


def backward(kept: Kept, slope: Tensor, to_weight: Tensor, to_bias: Tensor, to_images: bool) -> Tensor | None:
    """From the slope of the pooled images, those of filters and biases to where they belong, and that of the images."""
    slope = slope.contiguous()
    steepest = _largest(slope, kept.code)
    _filter_gradient(kept, slope, steepest, to_weight, to_bias)
    return _image_gradient(kept, slope, steepest) if to_images else None


def channels_first(images: Images, outs: int) -> Tensor:
    """As torch has them, [C, B, outs, H, W], less the channels that fill up."""
    return images.pixels[..., :outs].permute(0, 1, 4, 2, 3).contiguous()


def channels_last(slope: Tensor, channels: int) -> Tensor:
    """The other way round, with zeros in the channels that fill up."""
    inner = slope.permute(0, 1, 3, 4, 2)
    if channels == inner.shape[-1]:
        return inner.contiguous()
    filled = slope.new_zeros(*inner.shape[:-1], channels)
    filled[..., : inner.shape[-1]] = inner
    return filled


def _tiny(values: Tensor) -> Tensor:
    """The bits of the smallest number of each client that can be divided by, to find a larger one."""
    return torch.full((len(values),), kernels.TINY, dtype=torch.int32, device=values.device)


def _largest(values: Tensor, code: Tensor | None = None) -> Tensor:
    """Of each client, and not zero; with a code, of what ReLU lets pass."""
    most, numbers = _tiny(values), values[0].numel()
    kernels.largest[(triton.cdiv(numbers, 4 * _NUMBERS), len(values))](
        values, code, most, numbers, code is not None, 4 * _NUMBERS
    )
    return most.view(torch.float32)


def _spread(weight: Tensor, IN: int, OUT: int) -> tuple[Tensor, Tensor, Tensor]:
    """Filters as the kernels read them, going forward and back, and the largest of each client."""
    clients, outs, ins = weight.shape[:3]
    strength = weight.new_empty(clients, dtype=torch.int32)
    numbers, block = 9 * ins * outs, 4 * _NUMBERS
    kernels.strongest[(clients,)](weight, strength, weight.stride(0), numbers, triton.cdiv(numbers, block), block)
    wide, taps = (weight.new_empty(clients, taps, IN, OUT, dtype=torch.float16) for taps in (64, 9))
    kernels.spread[(triton.cdiv(64 * IN * OUT, _NUMBERS), clients)](
        weight, strength.view(torch.float32), wide, taps, weight.stride(0), ins, outs, IN, OUT, _NUMBERS
    )
    return wide, taps, strength.view(torch.float32)


def _filter_gradient(kept: Kept, slope: Tensor, steepest: Tensor, to_weight: Tensor, to_bias: Tensor) -> None:
    pixels, code = kept.images.pixels, kept.code
    clients, batch, height, width, ins = pixels.shape
    outs, pooled_pixels = code.shape[-1], batch * (height // 2) * (width // 2)
    pieces = 1 if 16 * ins <= _WHOLE else 6
    shares = _SHARES[pieces]
    (tile, warps, stages), strip = FILTERS, 16 if pieces == 1 else 4
    filters, biases = (pixels.new_empty(clients, shares, numbers) for numbers in (64 * ins * outs, outs))
    kernels.filter_gradient[(shares, clients, pieces)](
        pixels, code, slope, kept.images.largest, steepest, filters, biases,
        pooled_pixels, height, width, *pixels.stride(), 1 - kept.drop,
        ins, _block(strip * ins), outs, _block(outs), tile, strip, triton.cdiv(pooled_pixels, tile * shares),
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    tile = _NUMBERS // 4
    kernels.gathered[(triton.cdiv(9 * ins * outs, tile), clients)](
        filters, biases, to_weight, to_bias,
        to_weight.stride(0), to_bias.stride(0), to_weight.shape[2], to_weight.shape[1],
        ins, outs, _block(outs), shares, tile,
    )  # fmt: skip


def _image_gradient(kept: Kept, slope: Tensor, steepest: Tensor) -> Tensor:
    clients, batch, rows, columns, outs = kept.code.shape
    ins, pixels = kept.taps.shape[-2], batch * rows * columns
    images = slope.new_empty(clients, batch, 2 * rows, 2 * columns, ins)
    tile, warps, stages = IMAGE
    kernels.image_gradient[(triton.cdiv(pixels, tile), clients)](
        kept.taps, kept.code, slope, steepest, kept.strength, images,
        pixels, 2 * rows, 2 * columns, 1 - kept.drop,
        ins, _block(ins), outs, _block(outs), tile,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return images


def _block(numbers: int) -> int:
    return max(16, int(triton.next_power_of_2(numbers)))
