"""Operations with the same result as torch's, up to rounding, that take less time on a CPU core."""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


@cache
def has_fast_products() -> bool:
    """Whether oneDNN's matrix product is worth using: on AMD's cores with AVX-512, MKL uses half of their width."""
    known = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return known and torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"


def _product(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """rows @ weight.T + bias, by oneDNN."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return product


class Linear(torch.autograd.Function):
    """F.linear of inputs [B, inputs], float32."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return _product(inputs, weight, bias)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        of_inputs, of_weight, of_bias = ctx.needs_input_grad
        g = g.contiguous()
        return (
            _product(g, weight.t()) if of_inputs else None,
            _product(g.t(), inputs.t()) if of_weight else None,
            g.sum(0) if of_bias else None,
        )


class Conv2d(torch.autograd.Function):
    """F.conv2d with a bias. torch takes as long for the bias's gradient as for the weight's, if layout is channels_last.

    `geometry`: stride, padding, dilation and groups.
    """

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor, geometry: tuple[Any, ...]) -> Tensor:
        ctx.save_for_backward(images, weight)
        ctx.geometry = geometry
        return F.conv2d(images, weight, bias, *geometry)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        images, weight = ctx.saved_tensors
        stride, padding, dilation, groups = ctx.geometry
        of_images, of_weight, of_bias, _ = ctx.needs_input_grad
        of_images, of_weight, _ = torch.ops.aten.convolution_backward(
            *(g, images, weight, None, stride, padding, dilation, False, [0, 0], groups),
            [of_images, of_weight, False],
        )
        return of_images, of_weight, _channel_sums(g) if of_bias else None, None


def _channel_sums(g: Tensor) -> Tensor:
    last = g.permute(0, 2, 3, 1)
    return last.reshape(-1, last.shape[-1]).sum(0) if last.is_contiguous() else g.sum((0, 2, 3))


def pools_in_pairs(images: Tensor) -> bool:
    """Whether `MaxPool2x2` takes these images: channels_last, of even size."""
    height, width = images.shape[2:]
    return height % 2 == width % 2 == 0 and images.permute(0, 2, 3, 1).is_contiguous()


class MaxPool2x2(torch.autograd.Function):
    """F.max_pool2d(images, 2), as a maximum of pairs of rows, then of pairs of columns.

    torch compares element by element and stores positions in 8 bytes. Of equal pixels the upper left one is chosen, as
    in torch.
    """

    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        B, C, H, W = images.shape
        upper, lower = images.permute(0, 2, 3, 1).view(B, H // 2, 2, W, C).unbind(2)
        rows = torch.maximum(upper, lower)
        left, right = rows.view(B, H // 2, W // 2, 2, C).unbind(3)
        pooled = torch.maximum(left, right)
        # Masks of 0.0 and 1.0: products with a boolean mask take three times as long.
        ctx.save_for_backward(
            torch.gt(lower, upper, out=torch.empty_like(rows)), torch.gt(right, left, out=torch.empty_like(pooled))
        )
        return pooled.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, g: Tensor) -> Tensor:
        in_lower, in_right = ctx.saved_tensors
        B, height, W, C = in_lower.shape
        g = g.permute(0, 2, 3, 1).contiguous()
        rows = g.new_empty(B, height, W // 2, 2, C)
        _divide(g, in_right, *rows.unbind(3))
        images = g.new_empty(B, height, 2, W, C)
        _divide(rows.view(B, height, W, C), in_lower, *images.unbind(2))
        return images.view(B, 2 * height, W, C).permute(0, 3, 1, 2)


def _divide(g: Tensor, in_second: Tensor, first: Tensor, second: Tensor) -> None:
    """Writes g to `second` where the mask is 1, else to `first`, and 0 to the other."""
    torch.mul(g, in_second, out=second)
    torch.sub(g, second, out=first)


class Flatten(torch.autograd.Function):
    """images.flatten(1), with a gradient in the layout of the images: mixed layouts make the next operations slow."""

    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        ctx.shape = images.shape
        return images.flatten(1)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g.reshape(ctx.shape).contiguous(memory_format=torch.channels_last)
