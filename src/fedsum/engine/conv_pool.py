"""Convolution, dropout, ReLU and max pool of a whole cohort, each client with its own filters, in one kernel each way.

torch runs such a cohort as a grouped convolution, client by client and without tensor cores, and writes the large image
before the pool to memory some six times a step. Here it never gets there: of each pooled pixel only the value is kept
and which of its four pixels it came from.

The kernels are in `kernels.py`; here they become torch operations with a gradient.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
import torch
import triton
from torch import Tensor
from torch.nn import functional as F

from . import kernels

_WHOLE = 64
"""patches of at most so many numbers are one operand; larger ones are taken pixel by pixel"""
_SHARES = {1: 26, 6: 4}
"""of a client's pixels, by how many pieces the filters come in: with 20 clients, four programs a multiprocessor"""


class Rounded(torch.autograd.Function):
    """As `rounded` in the kernels, for a tensor; its gradient passes as it is."""

    @staticmethod
    def forward(x):
        near = ((x.contiguous().view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)
        return torch.where(x.isnan(), x, near)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx, slope):
        return slope


def spread(weight: Tensor) -> Tensor:
    """Filters [C, OUT, IN, 3, 3] over the patch, [C, 4, OUT, 4, 4, IN]."""
    taps = weight.permute(0, 1, 3, 4, 2)
    return torch.stack([F.pad(taps, (0, 0, p % 2, 1 - p % 2, p // 2, 1 - p // 2)) for p in range(4)], 1)


# How many pooled pixels a program takes, its warps and stages: the best of a few tried on an H200.
FORWARD, FORWARD_WHOLE = (64, 4, 1), (128, 4, 1)
FILTERS, FILTERS_WHOLE = (128, 4, 1), (128, 4, 1)
IMAGE = (64, 4, 1)


def _block(numbers: int) -> int:
    return max(16, int(triton.next_power_of_2(numbers)))


@torch.library.custom_op("fedsum::conv_pool", mutates_args=())
def _pooled(images: Tensor, spread: Tensor, bias: Tensor, seed: Tensor, drop: float) -> tuple[Tensor, Tensor]:
    clients, batch, height, width, ins = images.shape
    outs, pixels = bias.shape[1], batch * (height // 2) * (width // 2)
    if max(pixels * outs, images[0].numel()) >= 2**31:
        raise ValueError(
            f"{batch} images of {ins}x{height}x{width} to {outs} channels: more than 2^31 numbers a client"
        )
    pooled = images.new_empty(clients, batch, height // 2, width // 2, outs)
    code = torch.empty_like(pooled, dtype=torch.int8)
    whole = 16 * ins <= _WHOLE
    tile, warps, stages = FORWARD_WHOLE if whole else FORWARD
    kernels.forward[(triton.cdiv(pixels, tile), clients)](
        images, spread.contiguous(), bias.contiguous(), seed, pooled, code,
        pixels, height, width, *images.stride(), 1 - drop,
        ins, _block(16 * ins if whole else ins), outs, _block(outs), tile, whole, drop > 0,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return pooled, code


@_pooled.register_fake
def _(images: Tensor, spread: Tensor, bias: Tensor, seed: Tensor, drop: float) -> tuple[Tensor, Tensor]:
    clients, batch, height, width, _ = images.shape
    pooled = images.new_empty(clients, batch, height // 2, width // 2, bias.shape[1])
    return pooled, torch.empty_like(pooled, dtype=torch.int8)


def _pieces(ins: int) -> int:
    return 1 if 16 * ins <= _WHOLE else 6


@torch.library.custom_op("fedsum::conv_pool_filters", mutates_args=())
def filter_gradient(
    images: Tensor, code: Tensor, slope: Tensor, largest: Tensor, steepest: Tensor, drop: float
) -> tuple[Tensor, Tensor]:
    """The gradients of `spread` and of the biases, by shares of the pixels: [C, shares, ...]."""
    clients, batch, height, width, ins = images.shape
    outs, pixels = code.shape[-1], batch * (height // 2) * (width // 2)
    pieces = _pieces(ins)
    shares = _SHARES[pieces]
    tile, warps, stages, strip = (*FILTERS_WHOLE, 16) if pieces == 1 else (*FILTERS, 4)
    filters = images.new_empty(clients, shares, 4, 4, 4, ins, outs)
    biases = images.new_empty(clients, shares, outs)
    kernels.filter_gradient[(shares, clients, pieces)](
        images, code, slope.contiguous(), largest, steepest, filters, biases,
        pixels, height, width, *images.stride(), 1 - drop,
        ins, _block(strip * ins), outs, _block(outs), tile, strip, triton.cdiv(pixels, tile * shares),
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return filters, biases


@filter_gradient.register_fake
def _(
    images: Tensor, code: Tensor, slope: Tensor, largest: Tensor, steepest: Tensor, drop: float
) -> tuple[Tensor, Tensor]:
    clients, shares, ins, outs = images.shape[0], _SHARES[_pieces(images.shape[-1])], images.shape[-1], code.shape[-1]
    return images.new_empty(clients, shares, 4, 4, 4, ins, outs), images.new_empty(clients, shares, outs)


@torch.library.custom_op("fedsum::conv_pool_image", mutates_args=())
def image_gradient(taps: Tensor, code: Tensor, slope: Tensor, drop: float) -> Tensor:
    clients, batch, rows, columns, outs = code.shape
    ins, pixels = taps.shape[-2], batch * rows * columns
    images = slope.new_empty(clients, batch, 2 * rows, 2 * columns, ins)
    tile, warps, stages = IMAGE
    kernels.image_gradient[(triton.cdiv(pixels, tile), clients)](
        taps.contiguous(), code, slope.contiguous(), images,
        pixels, 2 * rows, 2 * columns, 1 - drop,
        ins, _block(ins), outs, _block(outs), tile,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return images


@image_gradient.register_fake
def _(taps: Tensor, code: Tensor, slope: Tensor, drop: float) -> Tensor:
    clients, batch, rows, columns, _ = code.shape
    return slope.new_empty(clients, batch, 2 * rows, 2 * columns, taps.shape[-2])


class ConvPool(torch.autograd.Function):
    """The pooled images and the code of each pixel, with the gradient."""

    @staticmethod
    def forward(images, spread, bias, seed, drop):
        return _pooled(images, spread, bias, seed, drop)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        images, spread, _, _, ctx.drop = inputs
        _, code = output
        ctx.mark_non_differentiable(code)
        ctx.save_for_backward(images, spread, code)

    @staticmethod
    def backward(ctx, slope, _):
        images, spread, code = ctx.saved_tensors
        with torch.no_grad():  # once: nobody asks for the gradient of a gradient
            steepest = _largest(slope.masked_fill(code == kernels.DEAD, 0.0))
            filters, biases = filter_gradient(images, code, slope, _largest(images), steepest, ctx.drop)
            to_images = None
            if ctx.needs_input_grad[0]:
                taps = spread[:, 0, :, :3, :3].permute(0, 2, 3, 4, 1)
                to_images = image_gradient(taps, code, slope, ctx.drop)
            return to_images, filters.sum(1).permute(0, 1, 5, 2, 3, 4), biases.sum(1), None, None


def _largest(values: Tensor) -> Tensor:
    """Of each client, and not zero: something is divided by it."""
    return values.abs().amax((1, 2, 3, 4)).clamp_min(torch.finfo(values.dtype).tiny)


def rounded(values: Tensor) -> Tensor:
    """To ten bits, as a factor is to be."""
    result: Tensor = Rounded.apply(values)
    return result


def conv_pool(images: Tensor, weight: Tensor, bias: Tensor, seed: Tensor, drop: float) -> Tensor:
    """Images [C, B, H, W, IN] to [C, B, H/2, W/2, OUT]: convolution, dropout by the seed, ReLU, max pool.

    The images are to be `rounded`, in any order of memory; what comes out is, with channels innermost.
    """
    pooled, _ = ConvPool.apply(images, spread(rounded(weight)), bias, seed, drop)
    assert isinstance(pooled, Tensor)
    return pooled
