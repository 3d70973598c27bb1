"""Convolution, dropout, ReLU and max pool of a whole cohort, each client with its own filters, in one kernel each way.

torch runs such a cohort as a grouped convolution, client by client and without tensor cores, and writes the large image
before the pool to memory some six times a step. Here it never gets there: of each pooled pixel only the value is kept
and which of its four pixels it came from.

The kernels are in `kernels.py`; here they become a torch operation with a gradient.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
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
_TINY = int(torch.tensor(torch.finfo(torch.float32).tiny).view(torch.int32))


@dataclass(frozen=True)
class Images:
    """Of a cohort, [C, B, H, W, channels], in any order of memory."""

    pixels: Tensor
    largest: Tensor | None = None
    """number of each client; None: not known"""


def conv_pool(images: Images, weight: Tensor, bias: Tensor, seed: Tensor | None = None, drop: float = 0.0) -> Images:
    """Convolution with filters [C, outs, ins, 3, 3], dropout, ReLU, max pool, of factors with ten bits.

    Args:
      images: they may have more channels than the filters, which do not see the others.
      seed: of the dropout, one number on the device.

    Returns:
      Their channels are innermost, a multiple of 16 with zeros at the end: memory is read in wide words.
    """
    pooled, _, top = ConvPool.apply(images.pixels, images.largest, weight, bias, seed, drop)
    return Images(pooled, top)


class ConvPool(torch.autograd.Function):
    """The pooled images, the code of each pixel and each client's largest number, with the gradient."""

    @staticmethod
    def forward(ctx, images, largest, weight, bias, seed, drop):
        clients, batch, height, width, ins = images.shape
        outs = bias.shape[1] + -bias.shape[1] % 16
        pixels = batch * (height // 2) * (width // 2)
        if max(pixels * outs, images[0].numel()) >= 2**31:
            raise ValueError(
                f"{batch} images of {ins}x{height}x{width} to {outs} channels: more than 2^31 numbers a client"
            )
        if largest is None:
            # The order of memory does not matter for it.
            first = images.permute(0, 1, 4, 2, 3)
            largest = _largest(first if first.is_contiguous() else images.contiguous())
        spread, taps = _spread(weight, ins, outs)
        pooled = images.new_empty(clients, batch, height // 2, width // 2, outs)
        code = torch.empty_like(pooled, dtype=torch.int8)
        top = _tiny(clients, images.device)
        whole = 16 * ins <= _WHOLE
        tile, warps, stages = FORWARD
        kernels.forward[(triton.cdiv(pixels, tile), clients)](
            images, spread, bias, seed, largest, pooled, code, top,
            pixels, height, width, *images.stride(), bias.stride(0), bias.shape[1], 1 - drop,
            ins, _block(16 * ins if whole else ins), outs, _block(outs), tile, whole, drop > 0,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        top = top.view(torch.float32)
        ctx.mark_non_differentiable(code, top)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(images, largest, taps, code)
        ctx.drop, ctx.shape = drop, weight.shape
        return pooled, code, top

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slope, *_):
        images, largest, taps, code = ctx.saved_tensors
        slope = slope.contiguous()
        steepest = _largest(slope, code)
        to_images = _image_gradient(taps, code, slope, steepest, ctx.drop) if ctx.needs_input_grad[0] else None
        filters, biases = _filter_gradient(images, largest, code, slope, steepest, ctx.shape, ctx.drop)
        return to_images, None, filters, biases, None, None


class ChannelsFirst(torch.autograd.Function):
    """Images [C, B, H, W, OUT] to [C, B, outs, H, W], in one pass each way."""

    @staticmethod
    def forward(ctx, images, outs):
        ctx.channels = images.shape[-1]
        return images[..., :outs].permute(0, 1, 4, 2, 3).contiguous()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slope):
        outs, inner = slope.shape[2], slope.permute(0, 1, 3, 4, 2)
        images = slope.new_empty(*inner.shape[:-1], ctx.channels)
        images[..., :outs] = inner
        images[..., outs:] = 0.0
        return images, None


def channels_first(images: Images, outs: int) -> Tensor:
    """The images as torch has them, less the channels that fill up."""
    result: Tensor = ChannelsFirst.apply(images.pixels, outs)
    return result


def _tiny(clients: int, device: torch.device) -> Tensor:
    """The bits of the smallest number of each client that can be divided by, to find a larger one."""
    return torch.full((clients,), _TINY, dtype=torch.int32, device=device)


def _largest(values: Tensor, code: Tensor | None = None) -> Tensor:
    """Of each client, and not zero; with a code, of what ReLU lets pass."""
    most, numbers = _tiny(len(values), values.device), values[0].numel()
    kernels.largest[(triton.cdiv(numbers, 4 * _NUMBERS), len(values))](
        values, code, most, numbers, code is not None, 4 * _NUMBERS
    )
    return most.view(torch.float32)


def _spread(weight: Tensor, IN: int, OUT: int) -> tuple[Tensor, Tensor]:
    """Filters as the kernels read them, going forward and back."""
    clients, outs, ins = weight.shape[:3]
    wide, taps = (weight.new_empty(clients, taps, IN, OUT, dtype=torch.float16) for taps in (64, 9))
    assert weight[0].is_contiguous()
    kernels.spread[(triton.cdiv(64 * IN * OUT, _NUMBERS), clients)](
        weight, wide, taps, weight.stride(0), ins, outs, IN, OUT, _NUMBERS
    )
    return wide, taps


def _filter_gradient(
    images: Tensor, largest: Tensor, code: Tensor, slope: Tensor, steepest: Tensor, shape: torch.Size, drop: float
) -> tuple[Tensor, Tensor]:
    """The gradients of the filters and of the biases."""
    clients, batch, height, width, ins = images.shape
    outs, pixels = code.shape[-1], batch * (height // 2) * (width // 2)
    pieces = 1 if 16 * ins <= _WHOLE else 6
    shares = _SHARES[pieces]
    (tile, warps, stages), strip = FILTERS, 16 if pieces == 1 else 4
    filters = images.new_empty(clients, shares, 64 * ins * outs)
    biases = images.new_empty(clients, shares, outs)
    kernels.filter_gradient[(shares, clients, pieces)](
        images, code, slope, largest, steepest, filters, biases,
        pixels, height, width, *images.stride(), 1 - drop,
        ins, _block(strip * ins), outs, _block(outs), tile, strip, triton.cdiv(pixels, tile * shares),
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    weight = images.new_empty(shape)
    kernels.gathered[(triton.cdiv(9 * ins * outs, _NUMBERS // 4), clients)](
        filters, weight, shape[2], shape[1], ins, outs, shares, _NUMBERS // 4
    )
    return weight, biases[..., : shape[1]].sum(1)


def _image_gradient(taps: Tensor, code: Tensor, slope: Tensor, steepest: Tensor, drop: float) -> Tensor:
    clients, batch, rows, columns, outs = code.shape
    ins, pixels = taps.shape[-2], batch * rows * columns
    images = slope.new_empty(clients, batch, 2 * rows, 2 * columns, ins)
    tile, warps, stages = IMAGE
    kernels.image_gradient[(triton.cdiv(pixels, tile), clients)](
        taps, code, slope, steepest, images,
        pixels, 2 * rows, 2 * columns, 1 - drop,
        ins, _block(ins), outs, _block(outs), tile,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return images


def _block(numbers: int) -> int:
    return max(16, int(triton.next_power_of_2(numbers)))
