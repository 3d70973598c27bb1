"""Convolution, dropout, ReLU and max pool of a whole cohort, each client with its own filters, in one kernel each way.

torch runs such a cohort as a grouped convolution, client by client and without tensor cores, and writes the large image
before the pool to memory some six times a step. Here it never gets there: of each pooled pixel only the value is kept
and which of its four pixels it came from.

A pooled pixel sees a patch of 4x4 pixels; its four pixels are p = 0..3, those of the patch q = 0..15, both row by row.
Filters are spread over the patch: spread[p, q] is the tap that pixel p has on q, or zero.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

_WHOLE = 64
"""patches of at most so many numbers are one operand; larger ones are taken pixel by pixel"""
_SHARES = {1: 26, 6: 4}
"""of a client's pixels, by how many pieces the filters come in: with 20 clients, four programs a multiprocessor"""
_DEAD = tl.constexpr(4)
"""the code of a pooled pixel that ReLU set to zero"""


@triton.jit
def _rounded(x):
    """To the ten bits that tensor cores take of a float32, which by themselves cut the rest off."""
    near = ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    return tl.where(x == x, near, x)  # CUDA's NaN is all ones, and would become zero


@triton.jit
def _patches(images, b, u, v, inside, k, height, width, s_image, s_row, s_column, s_channel, IN: tl.constexpr):
    """The numbers k of the patches under the pooled pixels (b, u, v), zero outside the image."""
    q, i = k // IN, k % IN
    y = 2 * u[:, None] + (q // 4)[None, :] - 1
    x = 2 * v[:, None] + (q % 4)[None, :] - 1
    there = inside[:, None] & (q < 16)[None, :] & (y >= 0) & (y < height) & (x >= 0) & (x < width)
    at = b[:, None] * s_image + y * s_row + x * s_column + i[None, :] * s_channel
    return tl.load(images + at, mask=there, other=0.0)


@triton.jit
def _pixels(first, pixels, height, width, PIXELS: tl.constexpr):
    m = first + tl.arange(0, PIXELS)
    rows, columns = height // 2, width // 2
    return m, m < pixels, m // (rows * columns), m // columns % rows, m % columns


@triton.jit
def _forward(
    images, spread, bias, seed, pooled, code,
    pixels, height, width, s_client, s_image, s_row, s_column, s_channel, kept,
    IN: tl.constexpr, IN_BLOCK: tl.constexpr, OUT: tl.constexpr, OUT_BLOCK: tl.constexpr, PIXELS: tl.constexpr,
    WHOLE: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    m, inside, b, u, v = _pixels(tl.program_id(0) * PIXELS, pixels, height, width, PIXELS)
    images += client * s_client
    k, o = tl.arange(0, IN_BLOCK), tl.arange(0, OUT_BLOCK)
    w = spread + client * (64 * IN * OUT) + o[:, None] * (16 * IN) + k[None, :]
    P: tl.constexpr = 16 * IN * OUT
    a0 = tl.zeros((PIXELS, OUT_BLOCK), tl.float32)
    a1, a2, a3 = a0, a0, a0
    if WHOLE:
        A = _patches(images, b, u, v, inside, k, height, width, s_image, s_row, s_column, s_channel, IN)
        in_w = (o < OUT)[:, None] & (k < 16 * IN)[None, :]
        a0 = tl.dot(A, tl.load(w, mask=in_w, other=0.0).T, a0)
        a1 = tl.dot(A, tl.load(w + P, mask=in_w, other=0.0).T, a1)
        a2 = tl.dot(A, tl.load(w + 2 * P, mask=in_w, other=0.0).T, a2)
        a3 = tl.dot(A, tl.load(w + 3 * P, mask=in_w, other=0.0).T, a3)
    else:
        in_w = (o < OUT)[:, None] & (k < IN)[None, :]
        for q in tl.static_range(16):
            y, x = 2 * u + (q // 4 - 1), 2 * v + (q % 4 - 1)
            there = inside & (y >= 0) & (y < height) & (x >= 0) & (x < width)
            at = (b * s_image + y * s_row + x * s_column)[:, None] + k[None, :] * s_channel
            A = tl.load(images + at, mask=there[:, None] & (k < IN)[None, :], other=0.0)
            if q // 4 < 3:
                if q % 4 < 3:
                    a0 = tl.dot(A, tl.load(w + q * IN, mask=in_w, other=0.0).T, a0)
                if q % 4 > 0:
                    a1 = tl.dot(A, tl.load(w + P + q * IN, mask=in_w, other=0.0).T, a1)
            if q // 4 > 0:
                if q % 4 < 3:
                    a2 = tl.dot(A, tl.load(w + 2 * P + q * IN, mask=in_w, other=0.0).T, a2)
                if q % 4 > 0:
                    a3 = tl.dot(A, tl.load(w + 3 * P + q * IN, mask=in_w, other=0.0).T, a3)
    shift = tl.load(bias + client * OUT + o, mask=o < OUT, other=0.0)[None, :]
    a0, a1, a2, a3 = a0 + shift, a1 + shift, a2 + shift, a3 + shift
    at = m[:, None] * OUT + o[None, :]
    if DROPS:
        r0, r1, r2, r3 = tl.rand4x(tl.load(seed) + client, at)
        a0 = tl.where(r0 < kept, a0 / kept, 0.0)
        a1 = tl.where(r1 < kept, a1 / kept, 0.0)
        a2 = tl.where(r2 < kept, a2 / kept, 0.0)
        a3 = tl.where(r3 < kept, a3 / kept, 0.0)
    # As torch does: the first of equals, and what is not a number wins.
    more = (a1 > a0) | (a1 != a1)
    which, best = tl.where(more, 1, 0), tl.where(more, a1, a0)
    more = (a2 > best) | (a2 != a2)
    which, best = tl.where(more, 2, which), tl.where(more, a2, best)
    more = (a3 > best) | (a3 != a3)
    which, best = tl.where(more, 3, which), tl.where(more, a3, best)
    dead = best <= 0.0
    out = inside[:, None] & (o < OUT)[None, :]
    pooled += client * pixels * OUT
    code += client * pixels * OUT
    tl.store(pooled + at, tl.where(dead, 0.0, _rounded(best)), mask=out)
    tl.store(code + at, tl.where(dead, _DEAD, which).to(tl.int8), mask=out)


@triton.jit
def _filter_gradient(
    images, code, slope, largest, steepest, filters, biases,
    pixels, height, width, s_client, s_image, s_row, s_column, s_channel, kept,
    IN: tl.constexpr, IN_BLOCK: tl.constexpr, OUT: tl.constexpr, OUT_BLOCK: tl.constexpr, PIXELS: tl.constexpr,
    STRIP: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """The gradient of `spread` over a share of the pixels: all of it, or what two pixels have on a row of the patch.

    Written is what has a tap, and more: what has none is left as it was.
    Factors in float16, which has tf32's 10 bits and, unlike it, can be read across pixels without a transposition;
    they are scaled by the client's `largest` pixel and `steepest` slope to lie within its range.
    """
    share, client, z = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    shares = tl.num_programs(0)
    p = z // 3 * 2  # the upper two pixels of the four, or the lower two; each has taps on three rows of the patch
    strip = z // 3 + z % 3
    images += client * s_client
    slope += client * pixels * OUT
    code += client * pixels * OUT
    k, o = tl.arange(0, IN_BLOCK), tl.arange(0, OUT_BLOCK)
    q, i = strip * STRIP + k // IN, k % IN
    offset = (q // 4 - 1) * s_row + (q % 4 - 1) * s_column + i * s_channel
    w0 = tl.zeros((IN_BLOCK, OUT_BLOCK), tl.float32)
    w1, w2, w3 = w0, w0, w0
    shift = tl.zeros((OUT_BLOCK,), tl.float32)
    narrow, flat = 1.0 / tl.load(largest + client), 1.0 / tl.load(steepest + client)
    for turn in range(TURNS):
        m, inside, b, u, v = _pixels((turn * shares + share) * PIXELS, pixels, height, width, PIXELS)
        at = m[:, None] * OUT + o[None, :]
        out = inside[:, None] & (o < OUT)[None, :]
        g = tl.load(slope + at, mask=out, other=0.0)
        c = tl.load(code + at, mask=out, other=_DEAD)
        y, x = 2 * u[:, None] + (q // 4 - 1)[None, :], 2 * v[:, None] + (q % 4 - 1)[None, :]
        there = inside[:, None] & (k < STRIP * IN)[None, :] & (y >= 0) & (y < height) & (x >= 0) & (x < width)
        A = images + (b * s_image + 2 * u * s_row + 2 * v * s_column)[:, None] + offset[None, :]
        A = (tl.load(A, mask=there, other=0.0) * narrow).to(tl.float16).T
        g = tl.where(c == _DEAD, 0.0, g)
        shift += tl.sum(g, 0)
        g = (g * flat).to(tl.float16)
        w0 = tl.dot(A, tl.where(c == p, g, 0.0).to(tl.float16), w0)
        w1 = tl.dot(A, tl.where(c == p + 1, g, 0.0).to(tl.float16), w1)
        if STRIP == 16:
            w2 = tl.dot(A, tl.where(c == 2, g, 0.0).to(tl.float16), w2)
            w3 = tl.dot(A, tl.where(c == 3, g, 0.0).to(tl.float16), w3)
    in_w = (k < STRIP * IN)[:, None] & (o < OUT)[None, :]
    part = client * shares + share
    to = filters + part * (64 * IN * OUT) + ((p * 16 + strip * STRIP) * IN + k)[:, None] * OUT + o[None, :]
    wide = tl.load(largest + client) * tl.load(steepest + client) / kept
    tl.store(to, w0 * wide, mask=in_w)
    tl.store(to + 16 * IN * OUT, w1 * wide, mask=in_w)
    if STRIP == 16:
        tl.store(to + 32 * IN * OUT, w2 * wide, mask=in_w)
        tl.store(to + 48 * IN * OUT, w3 * wide, mask=in_w)
    if z == 0:
        tl.store(biases + part * OUT + o, shift / kept, mask=o < OUT)


@triton.jit
def _image_gradient(
    taps, code, slope, images,
    pixels, height, width, kept,
    IN: tl.constexpr, IN_BLOCK: tl.constexpr, OUT: tl.constexpr, OUT_BLOCK: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Of the four pixels under each pooled one, from its window and the eight around it; channels innermost."""
    client = tl.program_id(1).to(tl.int64)
    m, inside, b, u, v = _pixels(tl.program_id(0) * PIXELS, pixels, height, width, PIXELS)
    rows, columns = height // 2, width // 2
    slope += client * pixels * OUT
    code += client * pixels * OUT
    i, o = tl.arange(0, IN_BLOCK), tl.arange(0, OUT_BLOCK)
    w = taps + client * (9 * IN * OUT) + i[:, None] * OUT + o[None, :]
    in_w = (i < IN)[:, None] & (o < OUT)[None, :]
    a0 = tl.zeros((PIXELS, IN_BLOCK), tl.float32)
    a1, a2, a3 = a0, a0, a0
    for window in tl.static_range(9):
        du, dv = window // 3 - 1, window % 3 - 1
        there = inside & (u + du >= 0) & (u + du < rows) & (v + dv >= 0) & (v + dv < columns)
        at = (m + du * columns + dv)[:, None] * OUT + o[None, :]
        there = there[:, None] & (o < OUT)[None, :]
        g = _rounded(tl.load(slope + at, mask=there, other=0.0) / kept)
        c = tl.load(code + at, mask=there, other=_DEAD)
        for p in tl.static_range(4):
            # Pixel p of that window lies at (y, x) from the first of ours; pixel r of ours is its tap r - (y, x) + 1.
            y, x = 2 * du + p // 2, 2 * dv + p % 2
            if y >= -1 and y <= 2 and x >= -1 and x <= 2:
                gp = tl.where(c == p, g, 0.0)
                for r in tl.static_range(4):
                    ty, tx = r // 2 - y + 1, r % 2 - x + 1
                    if ty >= 0 and ty <= 2 and tx >= 0 and tx <= 2:
                        tap = tl.load(w + (3 * ty + tx) * IN * OUT, mask=in_w, other=0.0).T
                        if r == 0:
                            a0 = tl.dot(gp, tap, a0)
                        if r == 1:
                            a1 = tl.dot(gp, tap, a1)
                        if r == 2:
                            a2 = tl.dot(gp, tap, a2)
                        if r == 3:
                            a3 = tl.dot(gp, tap, a3)
    to = images + client * (4 * pixels * IN) + ((b * height + 2 * u) * width + 2 * v)[:, None] * IN + i[None, :]
    out = inside[:, None] & (i < IN)[None, :]
    tl.store(to, a0, mask=out)
    tl.store(to + IN, a1, mask=out)
    tl.store(to + width * IN, a2, mask=out)
    tl.store(to + width * IN + IN, a3, mask=out)


class Rounded(torch.autograd.Function):
    """`_rounded` for a tensor; its gradient passes as it is."""

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
    _forward[(triton.cdiv(pixels, tile), clients)](
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
    _filter_gradient[(shares, clients, pieces)](
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
    _image_gradient[(triton.cdiv(pixels, tile), clients)](
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
            steepest = _largest(slope.masked_fill(code == _DEAD.value, 0.0))
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
