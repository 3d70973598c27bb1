"""The Triton kernels of GroupNorm, for `image_layers.py`. One program normalises one group of one image."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
import triton
import triton.language as tl


@triton.jit
def _group(area, batch, GROUPS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """The client of this program, where its group of its image begins, its first channel, and its channels."""
    client, group = tl.program_id(1).to(tl.int64), tl.program_id(0) % GROUPS
    image = client * batch + tl.program_id(0) // GROUPS
    c = tl.arange(0, BLOCK)
    return client, image * area * (GROUPS * SIZE) + group * SIZE, group * SIZE, c, image * GROUPS + group


@triton.jit
def normalise(
    images, weight, bias, out, mean, deviation,
    area, batch, s_weight, eps,
    GROUPS: tl.constexpr, SIZE: tl.constexpr, AFFINE: tl.constexpr, RELU: tl.constexpr,
    PIXELS: tl.constexpr, TURNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Groups with mean 0 and variance 1, then each channel's weight and bias, and ReLU.

    Saves the mean and 1 / deviation.
    """
    client, first, channel, c, entry = _group(area, batch, GROUPS, SIZE, BLOCK)
    WIDTH: tl.constexpr = GROUPS * SIZE
    count = area * SIZE
    total = tl.zeros((PIXELS, BLOCK), tl.float32)
    for turn in range(TURNS):
        m = turn * PIXELS + tl.arange(0, PIXELS)
        mask = (m < area)[:, None] & (c < SIZE)[None, :]
        total += tl.load(images + first + m[:, None] * WIDTH + c[None, :], mask=mask, other=0.0)
    centre = tl.sum(tl.sum(total, 1), 0) / count
    total = tl.zeros((PIXELS, BLOCK), tl.float32)
    for turn in range(TURNS):
        m = turn * PIXELS + tl.arange(0, PIXELS)
        mask = (m < area)[:, None] & (c < SIZE)[None, :]
        v = tl.load(images + first + m[:, None] * WIDTH + c[None, :], mask=mask, other=0.0)
        total += tl.where(mask, (v - centre) * (v - centre), 0.0)
    inverse = tl.rsqrt(tl.sum(tl.sum(total, 1), 0) / count + eps)
    tl.store(mean + entry, centre)
    tl.store(deviation + entry, inverse)
    for turn in range(TURNS):
        m = turn * PIXELS + tl.arange(0, PIXELS)
        mask = (m < area)[:, None] & (c < SIZE)[None, :]
        at = first + m[:, None] * WIDTH + c[None, :]
        v = (tl.load(images + at, mask=mask, other=0.0) - centre) * inverse
        if AFFINE:
            row = client * s_weight + channel + c
            v = v * tl.load(weight + row, mask=c < SIZE, other=0.0)[None, :]
            v += tl.load(bias + row, mask=c < SIZE, other=0.0)[None, :]
        if RELU:
            v = tl.where(v <= 0.0, 0.0, v)  # NaN passes
        tl.store(out + at, v, mask=mask)


@triton.jit
def normalise_back(
    grad, images, out, weight, mean, deviation, grad_images, grad_weight, grad_bias,
    area, batch, s_weight,
    GROUPS: tl.constexpr, SIZE: tl.constexpr, AFFINE: tl.constexpr, RELU: tl.constexpr,
    PIXELS: tl.constexpr, TURNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of `normalise`'s input, and each image's share of the gradients of weights and biases."""
    client, first, channel, c, entry = _group(area, batch, GROUPS, SIZE, BLOCK)
    WIDTH: tl.constexpr = GROUPS * SIZE
    centre, inverse = tl.load(mean + entry), tl.load(deviation + entry)
    slope = tl.zeros((BLOCK,), tl.float32)
    shift = tl.zeros((BLOCK,), tl.float32)
    for turn in range(TURNS):
        m = turn * PIXELS + tl.arange(0, PIXELS)
        mask = (m < area)[:, None] & (c < SIZE)[None, :]
        at = first + m[:, None] * WIDTH + c[None, :]
        g = tl.load(grad + at, mask=mask, other=0.0)
        if RELU:
            g = tl.where(tl.load(out + at, mask=mask, other=0.0) <= 0.0, 0.0, g)
        v = (tl.load(images + at, mask=mask, other=0.0) - centre) * inverse
        slope += tl.sum(g * v, 0)
        shift += tl.sum(g, 0)
    scale = tl.full((BLOCK,), 1.0, tl.float32)
    if AFFINE:
        scale = tl.load(weight + client * s_weight + channel + c, mask=c < SIZE, other=0.0)
        to = (client * batch + tl.program_id(0) // GROUPS) * WIDTH + channel + c
        tl.store(grad_weight + to, slope, mask=c < SIZE)
        tl.store(grad_bias + to, shift, mask=c < SIZE)
    count = area * SIZE
    along, level = tl.sum(slope * scale, 0) / count, tl.sum(shift * scale, 0) / count
    for turn in range(TURNS):
        m = turn * PIXELS + tl.arange(0, PIXELS)
        mask = (m < area)[:, None] & (c < SIZE)[None, :]
        at = first + m[:, None] * WIDTH + c[None, :]
        g = tl.load(grad + at, mask=mask, other=0.0)
        if RELU:
            g = tl.where(tl.load(out + at, mask=mask, other=0.0) <= 0.0, 0.0, g)
        g *= scale[None, :]
        v = (tl.load(images + at, mask=mask, other=0.0) - centre) * inverse
        tl.store(grad_images + at, (g - level - v * along) * inverse, mask=mask)
