"""Convolution, dropout, ReLU and max pool of a whole cohort, each client with its own filters.

torch runs such a cohort as a grouped convolution, client by client and without tensor cores, and writes the large image
before the pool to memory about six times per step. Here the layers are fused and that image is never written: per
pooled pixel only its value is stored, and which of the four pixels it came from.

The kernels are in `convolution_kernels.py`.
"""

# mypy: allow-untyped-calls
from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from . import convolution_kernels
from .scaled import Scaled, largest_of, power_of_two, smallest_bits, unit_of

_WHOLE = 4
"""patches of up to this many channels are one operand; patches of more channels are read pixel by pixel"""
_SHARES = {1: 13, 6: 2}
"""shares into which a client's pixels are split, one program each, by the number of pieces of the filters; for 20
clients these are two programs per multiprocessor"""

# Pooled pixels per program, warps and stages; tuned on an H200 with cohorts of the paper's size.
FORWARD = (128, 4, 3)
DROPPING = (128, 8, 3)
FILTERS = (128, 4, 1)
IMAGE = (64, 4, 1)
_BLOCK = 1024
"""elements per program of a kernel that works element by element"""


@dataclass(frozen=True)
class PaddedImages:
    """Images of a whole data set, each padded with zeros, at least one pixel on every side."""

    images: Scaled
    """[n, H + 2, W + 2 or more, channels]"""
    width: int
    """of an image without padding"""
    indices: Tensor | None = None
    """the images of each client, [C, B]"""

    @classmethod
    def of_batches(cls, values: Tensor) -> "PaddedImages":
        """From torch's layout, [C, B, channels, H, W], each client in its own unit."""
        values = values.contiguous()
        largest = largest_of(values)
        indices = torch.arange(values.shape[0] * values.shape[1], device=values.device).view(values.shape[:2])
        images = _padded(values.flatten(0, 1), largest, largest.repeat_interleave(values.shape[1]))
        return cls(images, values.shape[-1], indices)

    @classmethod
    def of_set(cls, values: Tensor, fill: Tensor | None = None) -> "PaddedImages":
        """From torch's layout, [n, channels, H, W], all in one unit, which also suits the fill colour of crops."""
        largest = largest_of(values.contiguous()[None])
        if fill is not None:
            largest = torch.maximum(largest, largest_of(fill[None]))
        return cls(_padded(values, largest, largest.expand(len(values))), values.shape[-1])

    def select(self, indices: Tensor) -> "PaddedImages":
        """The images of each client, [C, B], of a set in one unit."""
        return self._for_clients(self.images.factors, indices)

    def cropped(self, batch: Tensor, crop: int, fill: Tensor) -> "PaddedImages":
        """Images of a set in one unit, cropped and mirrored as by `Augment.apply`.

        Args:
          batch: index, dy, dx and mirrored per image, int64 [C, B, 4].
          crop: pixels of padding that the crops were drawn for.
          fill: colour of that padding as the network takes it, float32 [channels]; `of_set` must have had it too.
        """
        (clients, size), factors = batch.shape[:2], self.images.factors
        _, height, columns, IN = factors.shape
        elements, cropped = factors[0].numel(), factors.new_empty(clients * size, *factors.shape[1:])
        convolution_kernels.crop[(clients * size, triton.cdiv(elements, _BLOCK))](
            factors, batch.contiguous(), fill, self.images.unit, cropped,
            elements, height - 2, self.width, len(fill), crop, columns, IN, _BLOCK,
        )  # fmt: skip
        return self._for_clients(cropped, torch.arange(clients * size, device=batch.device).view(clients, size))

    def _for_clients(self, factors: Tensor, indices: Tensor) -> "PaddedImages":
        """Factors in the unit of this set, with that unit per client."""
        scaled = self.images
        unit, largest = (values.expand(len(indices)).contiguous() for values in (scaled.unit, scaled.largest))
        return PaddedImages(Scaled(factors, unit, largest), self.width, indices)


@dataclass(frozen=True)
class SavedForBackward:
    """The tensors that `forward` saves for `backward`."""

    images: PaddedImages | Scaled
    taps: Tensor
    """filters in the layout of the backward kernel"""
    strength: Tensor
    """the largest filter per client"""
    code: Tensor
    """per pooled pixel, which of the four pixels it came from"""
    drop: float
    """probability of dropout"""


def forward(
    images: PaddedImages | Scaled,
    weight: Tensor,
    bias: Tensor,
    seed: Tensor | None = None,
    drop: float = 0.0,
    *,
    last: bool = True,
) -> tuple[Tensor | Scaled, SavedForBackward]:
    """Convolution with filters [C, outs, ins, 3, 3], dropout, ReLU and max pool, with factors of ten bits.

    Args:
      images: padded, or [C, B, H, W, channels] as this function returns them.
      weight: each client's filters, contiguous.
      seed: of the dropout, one number on the device.
      last: return [C, B, outs, H/2, W/2] in float32 for torch; otherwise images for another `forward`.
    """
    layout = _Layout.of(images)
    clients, batch, height, width = layout.shape
    outs = bias.shape[1]
    OUT, pixels = max(16, power_of_two(outs)), batch * (height // 2) * (width // 2)
    if max(pixels * OUT, batch * layout.strides[1]) >= 2**31:
        raise ValueError(
            f"{batch} images of {layout.channels}x{height}x{width} to {OUT} channels: more than 2^31 values per client"
        )
    spread, taps, strength = _spread(weight, layout.channels, OUT)
    shape = (clients, batch, height // 2, width // 2)
    code, top, unit = weight.new_empty(*shape, OUT, dtype=torch.int8), smallest_bits(weight), weight.new_empty(clients)
    if last:
        pooled = weight.new_empty(*shape[:2], outs, *shape[2:])
    else:
        pooled = weight.new_empty(*shape, OUT, dtype=torch.float16)
    tile, warps, stages = DROPPING if drop else FORWARD
    tile = tile if OUT < 64 else tile // 2
    convolution_kernels.forward[(triton.cdiv(pixels, tile), clients)](
        layout.factors, layout.indices, spread, bias, seed, layout.unit, layout.largest, strength, pooled, code, top,
        unit, pixels, height, width, *layout.strides, batch, bias.stride(0), outs, 1 - drop,
        layout.channels, OUT, tile, layout.indices is not None, layout.channels <= _WHOLE, last, drop > 0, stages,
        num_warps=warps,
    )  # fmt: skip
    saved = SavedForBackward(images, taps, strength, code, drop)
    return pooled if last else Scaled(pooled, unit, top.view(torch.float32)), saved


def backward(
    saved: SavedForBackward, grad: Tensor | Scaled, to_weight: Tensor, to_bias: Tensor, to_images: bool
) -> Scaled | None:
    """Backpropagates the gradient of `forward`'s output.

    Writes the gradients of filters and biases, and returns the gradient of the images if `to_images`.
    """
    if isinstance(grad, Tensor):
        grad = _passed_by_relu(grad.contiguous(), saved.code)
    _filter_gradient(saved, grad, to_weight, to_bias)
    return _image_gradient(saved, grad) if to_images else None


def to_torch_layout(images: Scaled, channels: int) -> Tensor:
    """[C, B, channels, H, W] in float32."""
    values = images.factors[..., :channels].permute(0, 1, 4, 2, 3)
    return values.float() * images.unit.view(-1, 1, 1, 1, 1)


@dataclass(frozen=True)
class _Layout:
    """The layout in which the kernels read images."""

    factors: Tensor
    indices: Tensor | None
    unit: Tensor
    largest: Tensor
    shape: tuple[int, int, int, int]
    """clients, batch, height and width of an image without padding"""
    channels: int
    strides: tuple[int, int, int]
    """of a client, an image and a row"""

    @classmethod
    def of(cls, images: PaddedImages | Scaled) -> "_Layout":
        if isinstance(images, PaddedImages):
            assert images.indices is not None
            indices, scaled = images.indices.contiguous(), images.images
            _, height, _, channels = scaled.factors.shape
            clients, batch = indices.shape
            shape, s_client = (clients, batch, height - 2, images.width), 0
            s_image, s_row = scaled.factors.stride()[:2]
        else:
            indices, scaled = None, images
            *_, channels = scaled.factors.shape
            clients, batch, height, width = scaled.factors.shape[:4]
            shape = (clients, batch, height, width)
            s_client, s_image, s_row = scaled.factors.stride()[:3]
        return cls(scaled.factors, indices, scaled.unit, scaled.largest, shape, channels, (s_client, s_image, s_row))


def _padded(values: Tensor, largest: Tensor, largest_per_image: Tensor) -> Scaled:
    """Images [n, channels, H, W] padded and divided by the unit of their client's largest value."""
    n, channels, height, width = values.shape
    IN = power_of_two(channels)
    if IN > _WHOLE:
        IN = max(16, IN)
    # Rows of a multiple of 16 elements are read in wide words.
    padded = values.new_zeros(n, height + 2, width + 2 + -(width + 2) % max(1, 16 // IN), IN, dtype=torch.float16)
    factors = (values / unit_of(largest_per_image).view(-1, 1, 1, 1)).permute(0, 2, 3, 1)
    padded[:, 1:-1, 1 : width + 1, :channels] = factors
    return Scaled(padded, unit_of(largest), largest)


def _passed_by_relu(grad: Tensor, code: Tensor) -> Scaled:
    """A gradient from torch, [C, B, outs, H, W], as factors, with zeros at the outputs that ReLU set to zero."""
    clients, batch, outs, rows, columns = grad.shape
    elements, OUT = grad[0].numel(), code.shape[-1]
    top, factors, unit = smallest_bits(grad), torch.empty_like(code, dtype=torch.float16), grad.new_empty(clients)
    convolution_kernels.largest_gradient[(triton.cdiv(elements, 4 * _BLOCK), clients)](
        grad, code, top, elements, outs, rows * columns, OUT, 4 * _BLOCK
    )
    largest, tile, pixels = top.view(torch.float32), 2 * _BLOCK // OUT, batch * rows * columns
    convolution_kernels.gradient_factors[(triton.cdiv(pixels, tile), clients)](
        grad, code, largest, factors, unit, pixels, outs, rows * columns, OUT, tile
    )
    return Scaled(factors, unit, largest)


def _spread(weight: Tensor, IN: int, OUT: int) -> tuple[Tensor, Tensor, Tensor]:
    """Filters in the layouts of the forward and the backward kernel, and the largest filter per client."""
    clients, outs, ins = weight.shape[:3]
    strength = weight.new_empty(clients, dtype=torch.int32)
    elements, block = 9 * ins * outs, 4 * _BLOCK
    convolution_kernels.largest_filter[(clients,)](
        weight, strength, weight.stride(0), elements, triton.cdiv(elements, block), block
    )
    wide, taps = (weight.new_empty(clients, taps, IN, OUT, dtype=torch.float16) for taps in (64, 9))
    convolution_kernels.spread[(triton.cdiv(64 * IN * OUT, _BLOCK), clients)](
        weight, strength.view(torch.float32), wide, taps, weight.stride(0), ins, outs, IN, OUT, _BLOCK
    )
    return wide, taps, strength.view(torch.float32)


def _filter_gradient(saved: SavedForBackward, grad: Scaled, to_weight: Tensor, to_bias: Tensor) -> None:
    layout, OUT = _Layout.of(saved.images), saved.code.shape[-1]
    (clients, batch, height, width), IN, outs = layout.shape, layout.channels, to_bias.shape[1]
    pixels, pieces = batch * (height // 2) * (width // 2), 1 if IN <= _WHOLE else 6
    shares, strip = _SHARES[pieces], 16 if pieces == 1 else 4
    tile, warps, stages = FILTERS
    filters, biases = (to_bias.new_empty(clients, shares, elements) for elements in (64 * IN * OUT, OUT))
    convolution_kernels.filter_gradient[(shares, clients, pieces)](
        layout.factors, layout.indices, saved.code, grad.factors, layout.unit, grad.unit, filters, biases,
        pixels, height, width, *layout.strides, batch, 1 - saved.drop,
        IN, OUT, tile, strip, triton.cdiv(pixels, tile * shares), layout.indices is not None,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    tile = _BLOCK // 4
    convolution_kernels.sum_of_shares[(triton.cdiv(9 * IN * OUT, tile), clients)](
        filters, biases, to_weight, to_bias,
        to_weight.stride(0), to_bias.stride(0), to_weight.shape[2], outs, IN, OUT, shares, tile,
    )  # fmt: skip


def _image_gradient(saved: SavedForBackward, grad: Scaled) -> Scaled:
    clients, batch, rows, columns, OUT = saved.code.shape
    IN, pixels = saved.taps.shape[-2], batch * rows * columns
    factors = grad.factors.new_empty(clients, batch, 2 * rows, 2 * columns, IN)
    top, unit = smallest_bits(saved.code), grad.unit.new_empty(clients)
    tile, warps, stages = IMAGE
    convolution_kernels.image_gradient[(triton.cdiv(pixels, tile), clients)](
        saved.taps, saved.code, grad.factors, grad.unit, grad.largest, saved.strength, factors, top, unit,
        pixels, 2 * rows, 2 * columns, 1 - saved.drop,
        IN, max(16, IN), OUT, tile,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return Scaled(factors, unit, top.view(torch.float32))
