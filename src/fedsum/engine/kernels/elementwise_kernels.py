"""The Triton kernels of `layers.py`."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
import triton
import triton.language as tl


@triton.jit
def take_step(
    x, total, g, start, correction, step, scale, pull, decay,
    d, s_x, s_total, s_g, s_start, s_correction,
    SCALED: tl.constexpr, PULLED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = n < d
    gradient = tl.load(g + client * s_g + n, mask=mask)
    if SCALED:
        gradient *= tl.load(scale + client)
    change = gradient + tl.load(correction + client * s_correction + n, mask=mask)
    x += client * s_x + n
    total += client * s_total + n
    position, summed = tl.load(x, mask=mask), tl.load(total, mask=mask)
    if PULLED:
        change += tl.load(pull) * (position - tl.load(start + client * s_start + n, mask=mask))
        summed *= tl.load(decay)
    tl.store(x, position - tl.load(step) * change, mask=mask)
    tl.store(total, summed + gradient, mask=mask)


@triton.jit
def activate(
    values, bias, seed, out,
    s_bias, elements, width, keep_probability,
    SHIFTED: tl.constexpr, RELU: tl.constexpr, DROPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = n < elements
    v = tl.load(values + client * elements + n, mask=mask)
    if SHIFTED:
        v += tl.load(bias + client * s_bias + n % width, mask=mask)
    if RELU:
        v = tl.where(v <= 0.0, 0.0, v)  # NaN passes
    if DROPS:
        v = tl.where(tl.rand(tl.load(seed) + client, n) < keep_probability, v / keep_probability, 0.0)
    tl.store(out + client * elements + n, v, mask=mask)


@triton.jit
def deactivate(
    grad, out, seed, grad_input, bias,
    s_bias, rows, width, keep_probability,
    SHIFTED: tl.constexpr, RELU: tl.constexpr, DROPS: tl.constexpr,
    ROWS: tl.constexpr, TURNS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradient of `activate`'s input, and its sum over the rows; dropout masks are drawn again.

    With a bias one program takes all rows of its columns, otherwise a share of them.
    """
    client = tl.program_id(1).to(tl.int64)
    c = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    elements = rows * width
    shift = tl.zeros((COLUMNS,), tl.float32)
    for turn in range(TURNS):
        r = (turn * tl.num_programs(2) + tl.program_id(2)) * ROWS + tl.arange(0, ROWS)
        n = r[:, None] * width + c[None, :]
        mask = (r < rows)[:, None] & (c < width)[None, :]
        g = tl.load(grad + client * elements + n, mask=mask, other=0.0)
        if DROPS:
            g = tl.where(tl.rand(tl.load(seed) + client, n) < keep_probability, g / keep_probability, 0.0)
        if RELU:
            g = tl.where(tl.load(out + client * elements + n, mask=mask, other=0.0) <= 0.0, 0.0, g)
        tl.store(grad_input + client * elements + n, g, mask=mask)
        shift += tl.sum(g, 0)
    if SHIFTED:
        tl.store(bias + client * s_bias + c, shift, mask=c < width)


@triton.jit
def cross_entropy(
    outputs, targets, grad,
    rows, classes, share,
    ROWS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, CLASSES)
    n = r[:, None] * classes + c[None, :]
    mask = (r < rows)[:, None] & (c < classes)[None, :]
    v = tl.load(outputs + n, mask=mask, other=0.0)
    v = tl.where((c < classes)[None, :], v, float("-inf"))
    e = tl.exp(v - tl.max(v, 1)[:, None])
    right = c[None, :] == tl.load(targets + r, mask=r < rows, other=0)[:, None]
    g = e / tl.sum(e, 1)[:, None] - tl.where(right, 1.0, 0.0)
    tl.store(grad + n, g * share, mask=mask)
