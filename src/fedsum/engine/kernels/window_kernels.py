"""The Triton kernels of convolutions and pools of any size, stride and padding, for `image_layers.py`.

Images are [C, B, height, width, channels], channels innermost. A convolution is a product of each client's matrix of
patches, whose rows are pixels and whose columns are pairs (tap, channel), with its filters [taps * channels, outs]. The
matrix of patches is never written: its elements are read where they lie in the image.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
import triton
import triton.language as tl

from .scaled_kernels import magnitude


@triton.jit
def _columns(block, TAPS: tl.constexpr, IN: tl.constexpr, DEPTH: tl.constexpr):
    """The taps and channels of a block of columns of the matrix of patches, and which of them exist.

    From 16 channels on, a block has one tap. Otherwise it has the channels of several taps, one after the other.
    """
    n = tl.arange(0, DEPTH)
    if IN < 16:
        k = block * DEPTH + n
        tap, i, exists = (k // IN)[None, :], k % IN, k < TAPS * IN
    else:
        parts: tl.constexpr = (IN + DEPTH - 1) // DEPTH
        tap, i = block // parts, block % parts * DEPTH + n
        exists = i < IN
    return tap, i, exists


@triton.jit
def _patches(
    images, m, pixels, tap, i, exists,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    TAPS_X: tl.constexpr, STRIDE_Y: tl.constexpr, STRIDE_X: tl.constexpr,
    PADDING_Y: tl.constexpr, PADDING_X: tl.constexpr, IN: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Elements of the matrix of patches of images [B, HEIGHT, WIDTH, IN], for pixels m of [B, ROWS, COLUMNS].

    `BACK` is for the gradient of a convolution's input: the pixels m are those of the input, and the images are the
    gradient of the output. A tap then reads the output pixel to which it contributed, if there is one.
    """
    b, y, x = (m // (ROWS * COLUMNS))[:, None], (m // COLUMNS % ROWS)[:, None], (m % COLUMNS)[:, None]
    if BACK:
        row, column = y + PADDING_Y - tap // TAPS_X, x + PADDING_X - tap % TAPS_X
        reached = (row >= 0) & (column >= 0) & (row % STRIDE_Y == 0) & (column % STRIDE_X == 0)
        row, column = row // STRIDE_Y, column // STRIDE_X
    else:
        row, column = y * STRIDE_Y + tap // TAPS_X - PADDING_Y, x * STRIDE_X + tap % TAPS_X - PADDING_X
        reached = (row >= 0) & (column >= 0)
    reached = reached & (row < HEIGHT) & (column < WIDTH) & (m < pixels)[:, None] & exists[None, :]
    return tl.load(images + ((b * HEIGHT + row) * WIDTH + column) * IN + i[None, :], mask=reached, other=0.0)


@triton.jit
def convolve(
    images, filters, unit, filter_unit, bias, seed, out,
    pixels, image_elements, s_bias, keep_probability,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    TAPS: tl.constexpr, TAPS_X: tl.constexpr, STRIDE_Y: tl.constexpr, STRIDE_X: tl.constexpr,
    PADDING_Y: tl.constexpr, PADDING_X: tl.constexpr, IN: tl.constexpr, BACK: tl.constexpr,
    OUT: tl.constexpr, SHIFTED: tl.constexpr, RELU: tl.constexpr, DROPS: tl.constexpr,
    PIXELS: tl.constexpr, BLOCKS: tl.constexpr, DEPTH: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """The product of patches and filters, in float32, then bias, ReLU and dropout."""
    client = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    o = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    images += client * image_elements
    filters += client * (TAPS * IN * OUT)
    total = tl.zeros((PIXELS, CHANNELS), tl.float32)
    for block in range(BLOCKS):
        tap, i, exists = _columns(block, TAPS, IN, DEPTH)
        a = _patches(
            images, m, pixels, tap, i, exists, HEIGHT, WIDTH, ROWS, COLUMNS,
            TAPS_X, STRIDE_Y, STRIDE_X, PADDING_Y, PADDING_X, IN, BACK,
        )  # fmt: skip
        k = tl.reshape(tap * IN + i[None, :], (DEPTH, 1))
        w = tl.load(filters + k * OUT + o[None, :], mask=exists[:, None] & (o < OUT)[None, :], other=0.0)
        total = tl.dot(a, w, total)
    total *= tl.load(unit + client) * tl.load(filter_unit + client)
    if SHIFTED:
        total += tl.load(bias + client * s_bias + o, mask=o < OUT, other=0.0)[None, :]
    if RELU:
        total = tl.where(total <= 0.0, 0.0, total)  # NaN passes
    n = m[:, None] * OUT + o[None, :]
    if DROPS:
        total = tl.where(tl.rand(tl.load(seed) + client, n) < keep_probability, total / keep_probability, 0.0)
    tl.store(out + client * pixels * OUT + n, total, mask=(m < pixels)[:, None] & (o < OUT)[None, :])


@triton.jit
def output_gradient(
    grad, out, seed, grad_input, bias, top,
    pixels, keep_probability,
    OUT: tl.constexpr, RELU: tl.constexpr, DROPS: tl.constexpr,
    PIXELS: tl.constexpr, TURNS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """The gradient before dropout and ReLU, its largest magnitude per client, and its sums over a share of the pixels.

    Dropout masks are drawn again.
    """
    share, client = tl.program_id(0), tl.program_id(2).to(tl.int64)
    o = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    shares, start = tl.num_programs(0), client * pixels * OUT
    shift = tl.zeros((CHANNELS,), tl.float32)
    largest = tl.zeros((CHANNELS,), tl.int32)
    for turn in range(TURNS):
        m = (turn * shares + share) * PIXELS + tl.arange(0, PIXELS)
        n = m[:, None] * OUT + o[None, :]
        mask = (m < pixels)[:, None] & (o < OUT)[None, :]
        g = tl.load(grad + start + n, mask=mask, other=0.0)
        if DROPS:
            g = tl.where(tl.rand(tl.load(seed) + client, n) < keep_probability, g / keep_probability, 0.0)
        if RELU:
            g = tl.where(tl.load(out + start + n, mask=mask, other=0.0) <= 0.0, 0.0, g)
        tl.store(grad_input + start + n, g, mask=mask)
        shift += tl.sum(g, 0)
        largest = tl.maximum(largest, tl.max(magnitude(g), 0))
    tl.store(bias + (client * shares + share) * OUT + o, shift, mask=o < OUT)
    tl.atomic_max(top + client, tl.max(largest, 0))


@triton.jit
def filter_gradient(
    images, grad, unit, grad_unit, filters,
    pixels, image_elements,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    TAPS: tl.constexpr, TAPS_X: tl.constexpr, STRIDE_Y: tl.constexpr, STRIDE_X: tl.constexpr,
    PADDING_Y: tl.constexpr, PADDING_X: tl.constexpr, IN: tl.constexpr,
    OUT: tl.constexpr, PIXELS: tl.constexpr, TURNS: tl.constexpr, DEPTH: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """The transposed matrix of patches times the gradient of the output, over a share of the pixels."""
    share, client = tl.program_id(0), tl.program_id(2).to(tl.int64)
    shares = tl.num_programs(0)
    parts: tl.constexpr = (OUT + CHANNELS - 1) // CHANNELS
    tap, i, exists = _columns(tl.program_id(1) // parts, TAPS, IN, DEPTH)
    o = tl.program_id(1) % parts * CHANNELS + tl.arange(0, CHANNELS)
    images += client * image_elements
    grad += client * pixels * OUT
    total = tl.zeros((DEPTH, CHANNELS), tl.float32)
    for turn in range(TURNS):
        m = (turn * shares + share) * PIXELS + tl.arange(0, PIXELS)
        a = _patches(
            images, m, pixels, tap, i, exists, HEIGHT, WIDTH, ROWS, COLUMNS,
            TAPS_X, STRIDE_Y, STRIDE_X, PADDING_Y, PADDING_X, IN, False,
        )  # fmt: skip
        there = (m < pixels)[:, None] & (o < OUT)[None, :]
        g = tl.load(grad + m[:, None] * OUT + o[None, :], mask=there, other=0.0)
        total = tl.dot(a.T, g, total)
    total *= tl.load(unit + client) * tl.load(grad_unit + client)
    k = tl.reshape(tap * IN + i[None, :], (DEPTH, 1))
    to = filters + (client * shares + share) * (TAPS * IN * OUT) + k * OUT + o[None, :]
    tl.store(to, total, mask=exists[:, None] & (o < OUT)[None, :])


@triton.jit
def pool(
    images, out, code, elements, image_elements,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    TAPS: tl.constexpr, TAPS_X: tl.constexpr, STRIDE_Y: tl.constexpr, STRIDE_X: tl.constexpr,
    CHANNELS: tl.constexpr, LARGEST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The largest value of each window and its tap, or the mean of the window."""
    client = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = n < elements
    c, x, y = n % CHANNELS, n // CHANNELS % COLUMNS, n // (CHANNELS * COLUMNS) % ROWS
    b = n // (CHANNELS * COLUMNS * ROWS)
    first = ((b * HEIGHT + y * STRIDE_Y) * WIDTH + x * STRIDE_X) * CHANNELS + c
    images += client * image_elements
    value = tl.load(images + first, mask=mask, other=0.0)
    which = tl.zeros((BLOCK,), tl.int32)
    for tap in range(1, TAPS):
        v = tl.load(images + first + (tap // TAPS_X * WIDTH + tap % TAPS_X) * CHANNELS, mask=mask, other=0.0)
        if LARGEST:  # as in torch: the first of equal values, and NaN before any number
            better = (v > value) | (v != v)
            value, which = tl.where(better, v, value), tl.where(better, tap, which)
        else:
            value += v
    if LARGEST:
        tl.store(code + client * elements + n, which.to(tl.uint8), mask=mask)
    else:
        value /= TAPS
    tl.store(out + client * elements + n, value, mask=mask)


@triton.jit
def unpool(
    grad, code, images, elements, grad_elements,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    TAPS: tl.constexpr, TAPS_X: tl.constexpr, STRIDE_Y: tl.constexpr, STRIDE_X: tl.constexpr,
    CHANNELS: tl.constexpr, LARGEST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of `pool`'s input. Windows do not overlap, so a pixel is in one window or in none."""
    client = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c, x, y = n % CHANNELS, n // CHANNELS % WIDTH, n // (CHANNELS * WIDTH) % HEIGHT
    b = n // (CHANNELS * WIDTH * HEIGHT)
    row, column, dy, dx = y // STRIDE_Y, x // STRIDE_X, y % STRIDE_Y, x % STRIDE_X
    mask = (n < elements) & (row < ROWS) & (column < COLUMNS) & (dy < TAPS // TAPS_X) & (dx < TAPS_X)
    at = client * grad_elements + ((b * ROWS + row) * COLUMNS + column) * CHANNELS + c
    g = tl.load(grad + at, mask=mask, other=0.0)
    if LARGEST:
        chosen = tl.load(code + at, mask=mask, other=0).to(tl.int32)
        g = tl.where(chosen == dy * TAPS_X + dx, g, 0.0)
    else:
        g /= TAPS
    tl.store(images + client * elements + n, g, mask=n < elements)
