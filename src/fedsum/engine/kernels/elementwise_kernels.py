"""The Triton kernels of `layers.py`, which says what they are for."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
import triton
import triton.language as tl


@triton.jit
def take_step(
    x, total, g, correction, step, scale,
    d, s_x, s_total, s_g, s_correction,
    SCALED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = n < d
    slope = tl.load(g + client * s_g + n, mask=there)
    if SCALED:
        slope *= tl.load(scale + client)
    change = tl.load(step) * (slope + tl.load(correction + client * s_correction + n, mask=there))
    x += client * s_x + n
    total += client * s_total + n
    tl.store(x, tl.load(x, mask=there) - change, mask=there)
    tl.store(total, tl.load(total, mask=there) + slope, mask=there)


@triton.jit
def activate(
    values, bias, seed, out,
    s_bias, numbers, width, kept,
    SHIFTED: tl.constexpr, RELU: tl.constexpr, DROPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = n < numbers
    v = tl.load(values + client * numbers + n, mask=there)
    if SHIFTED:
        v += tl.load(bias + client * s_bias + n % width, mask=there)
    if RELU:
        v = tl.where(v <= 0.0, 0.0, v)  # what is not a number stays so
    if DROPS:
        v = tl.where(tl.rand(tl.load(seed) + client, n) < kept, v / kept, 0.0)
    tl.store(out + client * numbers + n, v, mask=there)


@triton.jit
def deactivate(
    slope, out, seed, before, bias,
    s_bias, rows, width, kept,
    SHIFTED: tl.constexpr, RELU: tl.constexpr, DROPS: tl.constexpr,
    ROWS: tl.constexpr, TURNS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The slope before `activate`, and its sum over the rows; what was dropped is drawn again."""
    client = tl.program_id(1).to(tl.int64)
    c = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    numbers = rows * width
    shift = tl.zeros((COLUMNS,), tl.float32)
    for turn in range(TURNS):
        r = turn * ROWS + tl.arange(0, ROWS)
        n = r[:, None] * width + c[None, :]
        there = (r < rows)[:, None] & (c < width)[None, :]
        g = tl.load(slope + client * numbers + n, mask=there, other=0.0)
        if DROPS:
            g = tl.where(tl.rand(tl.load(seed) + client, n) < kept, g / kept, 0.0)
        if RELU:
            g = tl.where(tl.load(out + client * numbers + n, mask=there, other=0.0) <= 0.0, 0.0, g)
        tl.store(before + client * numbers + n, g, mask=there)
        shift += tl.sum(g, 0)
    if SHIFTED:
        tl.store(bias + client * s_bias + c, shift, mask=c < width)


@triton.jit
def cross_entropy(
    outputs, targets, slope,
    rows, classes, share,
    ROWS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, CLASSES)
    n = r[:, None] * classes + c[None, :]
    there = (r < rows)[:, None] & (c < classes)[None, :]
    v = tl.load(outputs + n, mask=there, other=0.0)
    v = tl.where((c < classes)[None, :], v, float("-inf"))
    e = tl.exp(v - tl.max(v, 1)[:, None])
    right = c[None, :] == tl.load(targets + r, mask=r < rows, other=0)[:, None]
    g = e / tl.sum(e, 1)[:, None] - tl.where(right, 1.0, 0.0)
    tl.store(slope + n, g * share, mask=there)
