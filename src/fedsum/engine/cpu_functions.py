"""Operations with the same result as torch's, up to rounding, that take less time on a CPU core."""

from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Geometry = tuple[Any, ...]
"""of a convolution: stride, padding, dilation, groups"""


def _once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Refuses second derivatives. torch's decorator of this name is silent in `backward(inputs=...)`."""

    @wraps(backward)
    def refusing(ctx: Any, g: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError("a fast layer was differentiated twice")
        return backward(ctx, g)

    return refusing


@cache
def has_fast_products() -> bool:
    """Whether oneDNN's matrix product is worth using: on AMD's cores with AVX-512, MKL uses half of their width."""
    known = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return known and wide and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


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
    @_once_differentiable
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
    """F.conv2d with a bias, whose gradient takes torch as long as the weight's if the layout is channels_last."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(images, weight)
        ctx.geometry = geometry
        return F.conv2d(images, weight, bias, *geometry)

    @staticmethod
    @_once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        of_images, of_weight, of_bias, _ = ctx.needs_input_grad
        images, weight = ctx.saved_tensors
        gradients = _conv2d_gradients(g, images, weight, ctx.geometry, [of_images, of_weight])
        return *gradients, _channel_sums(g) if of_bias else None, None


def _conv2d_gradients(
    g: Tensor, images: Tensor, weight: Tensor, geometry: Geometry, needed: list[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of a convolution's images and weight."""
    stride, padding, dilation, groups = geometry
    of_images, of_weight, _ = torch.ops.aten.convolution_backward(
        *(g, images, weight, None, stride, padding, dilation, False, [0, 0], groups), [*needed, False]
    )
    return of_images, of_weight


def _channel_sums(g: Tensor) -> Tensor:
    last = _channels_at_end(g)
    return last.reshape(-1, last.shape[-1]).sum(0) if last.is_contiguous() else g.sum((0, 2, 3))


def _channels_at_end(images: Tensor) -> Tensor:
    """Images [B, C, H, W] as [B, H, W, C]; contiguous if their layout is channels_last."""
    return images.permute(0, 2, 3, 1)


def is_channels_last(images: Tensor) -> bool:
    return images.dim() == 4 and _channels_at_end(images).is_contiguous()


class MaxPool2x2(torch.autograd.Function):
    """F.max_pool2d(images, 2) of images of even size in channels_last layout."""

    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        ctx.pool = _Pooling(images.clone(memory_format=torch.preserve_format))
        return ctx.pool.pooled()  # type: ignore[no-any-return]

    @staticmethod
    @_once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return ctx.pool.gradient(g)  # type: ignore[no-any-return]


class ConvBlock(torch.autograd.Function):
    """max_pool2d(relu(mask * conv2d(images)), 2), for feature maps of even size; the mask is optional.

    The maximum is taken before the ReLU. Both orders give the same bits: ReLU is monotone, and where the maximum is not
    positive, both gradients are 0. The feature map before pooling, the largest tensor of many networks, is allocated
    once, and its gradient is written over it.
    """

    @staticmethod
    def forward(
        ctx: Any, images: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry, mask: Tensor | None
    ) -> Tensor:
        maps = F.conv2d(images, weight, bias, *geometry).contiguous(memory_format=torch.channels_last)
        if mask is not None:
            maps *= mask
        ctx.pool, ctx.mask, ctx.geometry = _Pooling(maps), mask, geometry
        ctx.save_for_backward(images, weight, outputs := ctx.pool.pooled().relu_())
        return outputs  # type: ignore[no-any-return]

    @staticmethod
    @_once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        images, weight, outputs = ctx.saved_tensors
        of_images, of_weight, of_bias, _, _ = ctx.needs_input_grad
        g = g.contiguous(memory_format=torch.channels_last)
        pooled = torch.ops.aten.threshold_backward(g, outputs, 0)
        maps = ctx.pool.gradient(pooled)
        if ctx.mask is not None:
            maps *= ctx.mask
        # Pooling only moves gradients, so that their sums are those of the pooled ones, which are a quarter as many.
        bias_sums = _channel_sums(pooled if ctx.mask is None else maps) if of_bias else None
        return *_conv2d_gradients(maps, images, weight, ctx.geometry, [of_images, of_weight]), bias_sums, None, None


class _Pooling:
    """The maximum of 2x2 pixels, as a maximum of pairs of columns, then of pairs of rows; overwrites the images.

    torch compares one element at a time and stores positions in 8 bytes. Here the second of two elements is overwritten
    by 1.0 if it is the maximum, else by 0.0. (Products with a boolean mask take three times as long.) Of equal pixels
    the first one counts, as in torch. This is why columns come first.
    """

    def __init__(self, images: Tensor) -> None:
        B, C, H, W = images.shape
        self._images = _channels_at_end(images).view(B, H, W // 2, 2, C)
        self._halved = images.new_empty(B, H // 2, 2, W // 2, C)
        _maximum(self._images.unbind(3), self._halved.view(B, H, W // 2, C))
        self._read = False

    def pooled(self) -> Tensor:
        """The maxima; can be called once. Not stored here: an output in a cycle of references is freed late."""
        B, height, _, width, C = self._halved.shape
        pooled = self._halved.new_empty(B, height, width, C)
        _maximum(self._halved.unbind(2), pooled)
        return pooled.permute(0, 3, 1, 2)

    def gradient(self, g: Tensor) -> Tensor:
        """The gradient of the images from the gradient of `pooled`; can be called once."""
        if self._read:
            raise RuntimeError("a max pooling was differentiated twice")
        self._read = True
        B, H, width, _, C = self._images.shape
        _divide(_channels_at_end(g).contiguous(), self._halved.unbind(2))
        _divide(self._halved.view(B, H, width, C), self._images.unbind(3))
        return self._images.view(B, H, 2 * width, C).permute(0, 3, 1, 2)


def _maximum(pair: Sequence[Tensor], out: Tensor) -> None:
    """Writes the maximum to `out`, and to the second of the pair whether it is the maximum."""
    first, second = pair
    torch.maximum(first, second, out=out)
    torch.gt(second, first, out=second)


def _divide(g: Tensor, pair: Sequence[Tensor]) -> None:
    """Writes g to the second of the pair where that is 1, else to the first, and 0 to the other."""
    first, second = pair
    torch.mul(g, second, out=second)
    torch.sub(g, second, out=first)


class Flatten(torch.autograd.Function):
    """images.flatten(1), with a gradient in the layout of the images: mixed layouts make the next operations slow."""

    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        ctx.shape = images.shape
        return images.flatten(1)

    @staticmethod
    @_once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g.reshape(ctx.shape).contiguous(memory_format=torch.channels_last)
