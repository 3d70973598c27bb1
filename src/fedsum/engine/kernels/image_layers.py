"""Convolutions, pools and GroupNorm of any size for a whole cohort, each with a forward and a backward pass.

Images are float32, [C, B, height, width, channels]. `conv_pool.py` is faster for the blocks that it supports.
"""

# mypy: allow-untyped-calls
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from . import group_norm_kernels, window_kernels
from .layers import Layer, Parameters, backward, draw_seed, forward
from .scaled import Scaled, largest_of, power_of_two, smallest_bits, to_factors

_BLOCK = 1024
"""elements per program of a kernel that works element by element"""
_PIXELS_PER_SHARE, _MAX_SHARES = 1024, 16
"""a client's pixels are split into shares for a sum over them, one program each"""
_CHANNELS = 64
"""most output channels per program"""

# Pixels, columns of the matrix of patches, warps and stages per program.
_FORWARD = (128, 64, 4, 3)
_FILTERS = (64, 64, 4, 2)


@dataclass(frozen=True)
class Window:
    """How a convolution or a pool moves over an image."""

    height: int
    width: int
    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)

    @property
    def rows(self) -> int:
        """of the output"""
        return (self.height + 2 * self.padding[0] - self.size[0]) // self.stride[0] + 1

    @property
    def columns(self) -> int:
        """of the output"""
        return (self.width + 2 * self.padding[1] - self.size[1]) // self.stride[1] + 1

    @property
    def taps(self) -> int:
        return self.size[0] * self.size[1]

    @property
    def forward(self) -> tuple[int, ...]:
        """The kernels' constants: input, output, taps and stride."""
        return self.height, self.width, self.rows, self.columns, self.taps, self.size[1], *self.stride

    @property
    def back(self) -> tuple[int, ...]:
        """The same for the gradient of the input, which is computed from the output's."""
        return self.rows, self.columns, self.height, self.width, self.taps, self.size[1], *self.stride


class _SavedConvolution(NamedTuple):
    images: Scaled
    strength: Tensor
    """the largest filter per client"""
    out: Tensor
    seed: Tensor | None
    """of the dropout"""


@dataclass(frozen=True)
class WindowedConvolution:
    """A convolution with optional bias, ReLU and dropout."""

    weight: str
    bias: str | None
    window: Window
    relu: bool
    drop: float
    """probability of dropout"""

    @property
    def names(self) -> list[str]:
        return [self.weight] if self.bias is None else [self.weight, self.bias]

    def forward(self, values: Tensor, x: Parameters) -> tuple[Tensor, _SavedConvolution]:
        filters = x[self.weight].permute(0, 3, 4, 2, 1).contiguous()
        strength, images, seed = largest_of(filters), to_factors(values.contiguous()), draw_seed(values, self.drop)
        out = self._convolved(
            images, to_factors(filters, strength), bias=None if self.bias is None else x[self.bias], seed=seed
        )
        return out, _SavedConvolution(images, strength, out, seed)

    def backward(self, grad: Tensor, saved: _SavedConvolution, x: Parameters, g: Parameters, further: bool) -> Tensor:
        factors, sums = self._before_activation(grad.contiguous(), saved)
        if self.bias is not None:
            torch.sum(sums, 1, out=g[self.bias])
        self._write_filter_gradient(saved.images, factors, g[self.weight])
        if not further:
            return grad
        filters = x[self.weight].permute(0, 3, 4, 1, 2).contiguous()
        return self._convolved(factors, to_factors(filters, saved.strength), back=True)

    def _convolved(
        self,
        images: Scaled,
        filters: Scaled,
        *,
        bias: Tensor | None = None,
        seed: Tensor | None = None,
        back: bool = False,
    ) -> Tensor:
        """The output of the layer; with `back` the gradient of its input from that of the convolution's output."""
        window, (clients, batch), (ins, outs) = self.window, images.factors.shape[:2], filters.factors.shape[-2:]
        rows, columns = (window.height, window.width) if back else (window.rows, window.columns)
        out = images.unit.new_empty(clients, batch, rows, columns, outs)
        pixels, elements = batch * rows * columns, images.factors[0].numel()
        if max(elements, pixels * outs) >= 2**31:
            raise ValueError(f"{batch} images of {rows}x{columns}x{outs}: more than 2^31 values per client")
        (tile, depth, warps, stages), channels = _FORWARD, _tile(outs)
        blocks, depth = _blocks(window.taps, ins, depth)
        window_kernels.convolve[(triton.cdiv(pixels, tile), triton.cdiv(outs, channels), clients)](
            images.factors, filters.factors, images.unit, filters.unit, bias, seed, out,
            pixels, elements, 0 if bias is None else bias.stride(0), 1 - self.drop,
            *(window.back if back else window.forward), *window.padding, ins, back,
            outs, bias is not None, self.relu and not back, self.drop > 0 and not back, tile, blocks, depth, channels,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return out

    def _before_activation(self, grad: Tensor, saved: _SavedConvolution) -> tuple[Scaled, Tensor]:
        """The gradient before ReLU and dropout, and its sums over shares of the pixels."""
        clients, outs = len(grad), grad.shape[-1]
        pixels, channels, top = grad[0].numel() // outs, _tile(outs), smallest_bits(grad)
        shares, tile = _shares(pixels), 2 * _BLOCK // channels
        slope, sums = torch.empty_like(grad), grad.new_empty(clients, shares, outs)
        window_kernels.output_gradient[(shares, triton.cdiv(outs, channels), clients)](
            grad, saved.out, saved.seed, slope, sums, top, pixels, 1 - self.drop,
            outs, self.relu, self.drop > 0, tile, triton.cdiv(pixels, tile * shares), channels,
        )  # fmt: skip
        return to_factors(slope, top.view(torch.float32)), sums

    def _write_filter_gradient(self, images: Scaled, grad: Scaled, to: Tensor) -> None:
        window, clients, ins, outs = self.window, len(to), to.shape[2], to.shape[1]
        pixels, (tile, depth, warps, stages), channels = grad.factors[0].numel() // outs, _FILTERS, _tile(outs)
        shares = _shares(pixels)
        parts = grad.unit.new_empty(clients, shares, *window.size, ins, outs)
        blocks, depth = _blocks(window.taps, ins, depth)
        window_kernels.filter_gradient[(shares, blocks * triton.cdiv(outs, channels), clients)](
            images.factors, grad.factors, images.unit, grad.unit, parts, pixels, images.factors[0].numel(),
            *window.forward, *window.padding, ins,
            outs, tile, triton.cdiv(pixels, tile * shares), depth, channels,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        torch.sum(parts, 1, out=to.permute(0, 3, 4, 2, 1))


@dataclass(frozen=True)
class Pool:
    """A pool whose windows do not overlap."""

    window: Window
    largest: bool
    """the largest value of each window, or the mean"""

    @property
    def names(self) -> list[str]:
        return []

    def forward(self, values: Tensor, x: Parameters) -> tuple[Tensor, Tensor | None]:
        values, window = values.contiguous(), self.window
        (clients, batch), channels = values.shape[:2], values.shape[-1]
        out = values.new_empty(clients, batch, window.rows, window.columns, channels)
        code = torch.empty_like(out, dtype=torch.uint8) if self.largest else None
        elements = out[0].numel()
        window_kernels.pool[(triton.cdiv(elements, _BLOCK), clients)](
            values, out, code, elements, values[0].numel(), *window.forward, channels, self.largest, _BLOCK
        )
        return out, code

    def backward(self, grad: Tensor, saved: Tensor | None, x: Parameters, g: Parameters, further: bool) -> Tensor:
        if not further:
            return grad
        grad, window = grad.contiguous(), self.window
        (clients, batch), channels = grad.shape[:2], grad.shape[-1]
        images = grad.new_empty(clients, batch, window.height, window.width, channels)
        elements = images[0].numel()
        window_kernels.unpool[(triton.cdiv(elements, _BLOCK), clients)](
            grad, saved, images, elements, grad[0].numel(), *window.forward, channels, self.largest, _BLOCK
        )
        return images


@dataclass(frozen=True)
class GroupNorm:
    """GroupNorm with optional ReLU."""

    name: str
    groups: int
    eps: float
    affine: bool
    """whether channels have weights and biases"""
    relu: bool

    @property
    def names(self) -> list[str]:
        return [f"{self.name}.weight", f"{self.name}.bias"] if self.affine else []

    def forward(self, values: Tensor, x: Parameters) -> tuple[Tensor, tuple[Tensor, ...]]:
        values = values.contiguous()
        out, (mean, deviation) = torch.empty_like(values), values.new_empty(2, *values.shape[:2], self.groups)
        weight, bias = (x[name] for name in self.names) if self.affine else (None, None)
        group_norm_kernels.normalise[self._grid(values)](
            values, weight, bias, out, mean, deviation, *self._sizes(values, weight), self.eps, *self._constants(values)
        )
        return out, (values, out, mean, deviation)

    def backward(self, grad: Tensor, saved: tuple[Tensor, ...], x: Parameters, g: Parameters, further: bool) -> Tensor:
        grad, (values, out, mean, deviation) = grad.contiguous(), saved
        grad_values, shares = torch.empty_like(grad), grad.new_empty(2, *grad.shape[:2], grad.shape[-1])
        weight = x[self.names[0]] if self.affine else None
        group_norm_kernels.normalise_back[self._grid(values)](
            grad, values, out, weight, mean, deviation, grad_values, *shares, *self._sizes(values, weight),
            *self._constants(values),
        )  # fmt: skip
        for name, share in zip(self.names, shares, strict=False):
            torch.sum(share, 1, out=g[name])
        return grad_values

    def _grid(self, values: Tensor) -> tuple[int, int]:
        return values.shape[1] * self.groups, len(values)

    def _sizes(self, values: Tensor, weight: Tensor | None) -> tuple[int, int, int]:
        """Pixels of an image, images of a client, and the distance between the clients' weights."""
        return values.shape[2] * values.shape[3], values.shape[1], 0 if weight is None else weight.stride(0)

    def _constants(self, values: Tensor) -> tuple[int, int, bool, bool, int, int, int]:
        area, size = values.shape[2] * values.shape[3], values.shape[-1] // self.groups
        block = power_of_two(size)
        tile = max(1, min(2 * _BLOCK // block, power_of_two(area)))
        return self.groups, size, self.affine, self.relu, tile, triton.cdiv(area, tile), block


@dataclass(frozen=True)
class ImageLayers:
    """Successive layers of images: images return to torch's layout, [C, B, channels, H, W], only after the last one."""

    layers: tuple[Layer, ...]
    values: int
    """numbers in the outputs of all these layers, per image"""

    @property
    def names(self) -> list[str]:
        return [name for layer in self.layers for name in layer.names]

    def forward(self, values: Tensor, x: Parameters) -> tuple[Tensor, list[Any]]:
        images, saved = forward(self.layers, values.permute(0, 1, 3, 4, 2), x)
        return images.permute(0, 1, 4, 2, 3), saved

    def backward(self, grad: Tensor, saved: list[Any], x: Parameters, g: Parameters, further: bool) -> Tensor:
        back = backward(self.layers, grad.permute(0, 1, 3, 4, 2), saved, x, g, further)
        return back.permute(0, 1, 4, 2, 3)


def _shares(pixels: int) -> int:
    """A function of the shape alone, so that results do not depend on the number of clients."""
    return max(1, min(_MAX_SHARES, pixels // _PIXELS_PER_SHARE))


def _blocks(taps: int, ins: int, depth: int) -> tuple[int, int]:
    """How many blocks of columns the matrix of patches has, and their width of at most `depth`."""
    if ins < 16:  # several taps per block
        return triton.cdiv(taps * ins, depth), depth
    depth = min(depth, power_of_two(ins))
    return taps * triton.cdiv(ins, depth), depth


def _tile(channels: int) -> int:
    """Output channels per program; products have at least 16 columns."""
    return min(_CHANNELS, max(16, power_of_two(channels)))
