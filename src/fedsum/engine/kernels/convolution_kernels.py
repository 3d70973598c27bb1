"""The Triton kernels of `conv_pool.py`.

A pooled pixel depends on a patch of 4x4 pixels; its four pixels are p = 0..3, those of the patch q = 0..15, both row by
row. Filters are spread over the patch: spread[p, q] is the tap that pixel p has on q, or zero.

Values are float16 factors with one unit per client (`scaled_kernels.py`).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
import triton
import triton.language as tl

from .scaled_kernels import TINY, magnitude, unit_of

DEAD = 4
"""the code of a pooled pixel that ReLU set to zero"""
_DEAD = tl.constexpr(DEAD)
_TINY = tl.constexpr(TINY)


@triton.jit
def largest_filter(weight, largest, s_client, elements, TURNS: tl.constexpr, BLOCK: tl.constexpr):
    """The largest filter per client. One program per client is enough, because filters are small."""
    client = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK)
    top = tl.zeros((BLOCK,), tl.int32)
    for turn in range(TURNS):
        w = tl.load(weight + client * s_client + turn * BLOCK + n, mask=turn * BLOCK + n < elements, other=0.0)
        top = tl.maximum(top, magnitude(w))
    tl.store(largest + client, tl.maximum(tl.max(top, 0), _TINY))


@triton.jit
def spread(
    weight, strength, wide, taps, s_client, ins, outs,
    IN: tl.constexpr, OUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Filters [C, outs, ins, 3, 3] over the patch, [C, 4, 16, IN, OUT], and tap by tap, [C, 9, IN, OUT]."""
    client = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    o, i, q, p = n % OUT, n // OUT % IN, n // (IN * OUT) % 16, n // (16 * IN * OUT)
    y, x = q // 4 - p // 2, q % 4 - p % 2
    mask = (p < 4) & (o < outs) & (i < ins) & (y >= 0) & (y < 3) & (x >= 0) & (x < 3)
    w = tl.load(weight + client * s_client + (o * ins + i) * 9 + 3 * y + x, mask=mask, other=0.0)
    w = (w / unit_of(tl.load(strength + client))).to(tl.float16)
    tl.store(wide + client * (64 * IN * OUT) + n, w, mask=p < 4)
    # The first of the four pixels has the taps in their own order.
    tap = (p == 0) & (y >= 0) & (y < 3) & (x >= 0) & (x < 3)
    tl.store(taps + client * (9 * IN * OUT) + ((3 * y + x) * IN + i) * OUT + o, w, mask=tap)


@triton.jit
def sum_of_shares(
    filters, biases, weight, bias,
    s_weight, s_bias, ins, outs,
    IN: tl.constexpr, OUT: tl.constexpr, SHARES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Results of `filter_gradient` summed over shares and pixels: [C, outs, ins, 3, 3] and [C, outs]."""
    client = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    o, i, tap = n % OUT, n // OUT % IN, n // (IN * OUT)
    mask = (tap < 9) & (o < outs) & (i < ins)
    total = tl.zeros((BLOCK,), tl.float32)
    filters += client * SHARES * (64 * IN * OUT) + i * OUT + o
    for share in range(SHARES):
        for p in tl.static_range(4):
            q = 4 * (tap // 3 + p // 2) + tap % 3 + p % 2
            total += tl.load(filters + ((share * 4 + p) * 16 + q) * (IN * OUT), mask=mask, other=0.0)
    tl.store(weight + client * s_weight + (o * ins + i) * 9 + tap, total, mask=mask)
    if tl.program_id(0) == 0:
        c = tl.arange(0, OUT)
        shift = tl.zeros((OUT,), tl.float32)
        for share in range(SHARES):
            shift += tl.load(biases + (client * SHARES + share) * OUT + c)
        tl.store(bias + client * s_bias + c, shift, mask=c < outs)


@triton.jit
def crop(
    images, batch, fill, unit, cropped,
    elements, height, width, channels, padding,
    COLUMNS: tl.constexpr, IN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Images of a set, [n, height + 2, COLUMNS, IN], cropped and mirrored by their codes (index, dy, dx, mirrored).

    Pixels that the crop takes from outside its image have the fill colour. The zeros around an image stay zeros.
    """
    image = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    y, x, c = n // (COLUMNS * IN), n // IN % COLUMNS, n % IN
    inside = (y >= 1) & (y <= height) & (x >= 1) & (x <= width)
    batch += 4 * image
    index = tl.load(batch)
    dy, dx, mirrored = tl.load(batch + 1).to(tl.int32), tl.load(batch + 2).to(tl.int32), tl.load(batch + 3) > 0
    row = y + (dy - padding)
    column = tl.where(mirrored, width + 1 - x, x) + (dx - padding)
    found = inside & (row >= 1) & (row <= height) & (column >= 1) & (column <= width)
    v = tl.load(images + index * elements + (row * COLUMNS + column) * IN + c, mask=found, other=0.0)
    colour = tl.load(fill + c, mask=inside & (c < channels), other=0.0) / tl.load(unit)
    tl.store(cropped + image * elements + n, tl.where(found, v, colour.to(tl.float16)), mask=n < elements)


@triton.jit
def largest_gradient(grad, code, largest, elements, outs, area, OUT: tl.constexpr, BLOCK: tl.constexpr):
    """The largest gradient per client, [C, B, outs, area], where ReLU passes it; codes are [C, B, area, OUT]."""
    client = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = n < elements
    v = magnitude(tl.load(grad + client * elements + n, mask=mask, other=0.0))
    at = (n // (area * outs) * area + n % area) * OUT + n // area % outs
    c = tl.load(code + client * (elements // outs * OUT) + at, mask=mask, other=_DEAD)
    tl.atomic_max(largest + client, tl.max(tl.where(c == _DEAD, 0, v), 0))


@triton.jit
def gradient_factors(
    grad, code, largest, factors, unit, pixels, outs, area,
    OUT: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Gradients [C, B, outs, area] to factors [C, B, area, OUT], zero where ReLU gave zero."""
    client = tl.program_id(1).to(tl.int64)
    m, o = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS), tl.arange(0, OUT)
    inside = (m < pixels)[:, None]
    to = unit_of(tl.load(largest + client))
    near = client * pixels * OUT + m[:, None] * OUT + o[None, :]
    far = client * pixels * outs + ((m // area * outs)[:, None] + o[None, :]) * area + (m % area)[:, None]
    c = tl.load(code + near, mask=inside, other=_DEAD)
    g = tl.load(grad + far, mask=inside & (o < outs)[None, :], other=0.0)
    tl.store(factors + near, (tl.where(c == _DEAD, 0.0, g) / to).to(tl.float16), mask=inside)
    if tl.program_id(0) == 0:
        tl.store(unit + client, to)


@triton.jit
def _pixels(first, pixels, height, width, PIXELS: tl.constexpr):
    m = first + tl.arange(0, PIXELS)
    rows, columns = height // 2, width // 2
    return m, m < pixels, m // (rows * columns), m // columns % rows, m % columns


@triton.jit
def _image(images, indices, client, b, inside, s_client, s_image, batch, PADDED: tl.constexpr):
    """The address of each pixel's image; padded images are read by their indices."""
    if PADDED:
        return images + tl.load(indices + client * batch + b, mask=inside, other=0) * s_image
    return images + client * s_client + b * s_image


@triton.jit
def _larger(best, a, left: tl.constexpr):
    """The larger of two positive float32, compared as integers; the last two bits hold the number of the pixel."""
    return tl.maximum(best, (a.to(tl.int32, bitcast=True) & -4) | left)


@triton.jit
def forward(
    images, indices, spread, bias, seed, unit, largest, strength, pooled, code, top, unit_out,
    pixels, height, width, s_client, s_image, s_row, batch, s_bias, outs, keep_probability,
    IN: tl.constexpr, OUT: tl.constexpr, PIXELS: tl.constexpr,
    PADDED: tl.constexpr, WHOLE: tl.constexpr, LAST: tl.constexpr, DROPS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    m, inside, b, u, v = _pixels(tl.program_id(0) * PIXELS, pixels, height, width, PIXELS)
    o = tl.arange(0, OUT)
    P: tl.constexpr = 16 * IN * OUT
    spread += client * (4 * P)
    a0 = tl.zeros((PIXELS, OUT), tl.float32)
    a1, a2, a3 = a0, a0, a0
    image = _image(images, indices, client, b, inside, s_client, s_image, batch, PADDED)
    if WHOLE:  # padded, so that a row of the patch is contiguous
        k = tl.arange(0, 16 * IN)
        at = (image + 2 * u * s_row + 2 * v * IN)[:, None] + (k // (4 * IN) * s_row + k % (4 * IN))[None, :]
        A = tl.load(at, mask=inside[:, None], other=0.0)
        w = spread + k[:, None] * OUT + o[None, :]
        a0 = tl.dot(A, tl.load(w), a0)
        a1 = tl.dot(A, tl.load(w + P), a1)
        a2 = tl.dot(A, tl.load(w + 2 * P), a2)
        a3 = tl.dot(A, tl.load(w + 3 * P), a3)
    else:
        i = tl.arange(0, IN)
        padding: tl.constexpr = 0 if PADDED else 1
        at = (image + (2 * u - padding) * s_row + (2 * v - padding) * IN)[:, None] + i[None, :]
        w = spread + i[:, None] * OUT + o[None, :]
        for q in tl.range(16, num_stages=STAGES):
            dy, dx = q // 4, q % 4
            mask = inside
            if not PADDED:
                mask = mask & (2 * u + dy >= 1) & (2 * u + dy <= height) & (2 * v + dx >= 1) & (2 * v + dx <= width)
            A = tl.load(at + dy * s_row + dx * IN, mask=mask[:, None], other=0.0)
            a0 = tl.dot(A, tl.load(w + q * (IN * OUT)), a0)
            a1 = tl.dot(A, tl.load(w + (16 + q) * (IN * OUT)), a1)
            a2 = tl.dot(A, tl.load(w + (32 + q) * (IN * OUT)), a2)
            a3 = tl.dot(A, tl.load(w + (48 + q) * (IN * OUT)), a3)
    shift = tl.load(bias + client * s_bias + o, mask=o < outs, other=0.0)
    strong = tl.load(strength + client)
    by = unit_of(strong) * tl.load(unit + client)
    a0 = a0 * by + shift[None, :]
    a1 = a1 * by + shift[None, :]
    a2 = a2 * by + shift[None, :]
    a3 = a3 * by + shift[None, :]
    if DROPS:
        r0, r1, r2, r3 = tl.rand4x(tl.load(seed) + client, m[:, None] * OUT + o[None, :])
        a0 = tl.where(r0 < keep_probability, a0 / keep_probability, 0.0)
        a1 = tl.where(r1 < keep_probability, a1 / keep_probability, 0.0)
        a2 = tl.where(r2 < keep_probability, a2 / keep_probability, 0.0)
        a3 = tl.where(r3 < keep_probability, a3 / keep_probability, 0.0)
    # As in torch, the first of equal values is chosen, and NaN before any number. Values after ReLU are positive and
    # order like integers; two of their 23 bits hold the number of the pixel.
    best = _larger(_larger(_larger(_larger(0, a0, 3), a1, 2), a2, 1), a3, 0)
    any_of = a0 + a1 + a2 + a3
    best = tl.where(any_of != any_of, 0x7FFFFFFF, best)
    dead = best < 4
    which = tl.where(dead, _DEAD, 3 - (best & 3)).to(tl.int8)
    value = (best & -4).to(tl.float32, bitcast=True)
    real = inside[:, None] & (o < outs)[None, :]
    tl.atomic_max(top + client, tl.max(tl.max(tl.where(real, magnitude(value), 0), 1), 0))
    near = client * pixels * OUT + m[:, None] * OUT + o[None, :]
    tl.store(code + near, which, mask=inside[:, None])
    if LAST:
        area = (height // 2) * (width // 2)
        far = client * pixels * outs + ((b * outs)[:, None] + o[None, :]) * area + (m % area)[:, None]
        tl.store(pooled + far, value, mask=real)
    else:
        # The unit is that of a bound on all sums: the largest value is only known when all programs are done.
        shift = tl.max(magnitude(shift), 0).to(tl.float32, bitcast=True)
        to = unit_of((9 * IN * strong * tl.load(largest + client) + shift) / keep_probability)
        tl.store(pooled + near, (value / to).to(tl.float16), mask=inside[:, None])
        if tl.program_id(0) == 0:
            tl.store(unit_out + client, to)


@triton.jit
def filter_gradient(
    images, indices, code, grad, unit, grad_unit, filters, biases,
    pixels, height, width, s_client, s_image, s_row, batch, keep_probability,
    IN: tl.constexpr, OUT: tl.constexpr, PIXELS: tl.constexpr, STRIP: tl.constexpr, TURNS: tl.constexpr,
    PADDED: tl.constexpr,
):  # fmt: skip
    """The gradient of `spread` over a share of the pixels: all of it, or the part of two pixels on a row of the patch.

    Only entries with a tap are guaranteed to be written.
    """
    share, client, z = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    shares = tl.num_programs(0)
    p = z // 3 * 2  # the upper two pixels of the four, or the lower two; each has taps on three rows of the patch
    strip = z // 3 + z % 3
    grad += client * pixels * OUT
    code += client * pixels * OUT
    k, o = tl.arange(0, STRIP * IN), tl.arange(0, OUT)
    padding: tl.constexpr = 0 if PADDED else 1
    dy, dx = strip * (STRIP // 4) + k // (4 * IN), k // IN % 4
    offset = (dy - padding) * s_row - padding * IN + k % (4 * IN)
    w0 = tl.zeros((STRIP * IN, OUT), tl.float32)
    w1, w2, w3 = w0, w0, w0
    shift = tl.zeros((OUT,), tl.float32)
    for turn in range(TURNS):
        m, inside, b, u, v = _pixels((turn * shares + share) * PIXELS, pixels, height, width, PIXELS)
        at = m[:, None] * OUT + o[None, :]
        g = tl.load(grad + at, mask=inside[:, None], other=0.0)
        c = tl.load(code + at, mask=inside[:, None], other=_DEAD)
        image = _image(images, indices, client, b, inside, s_client, s_image, batch, PADDED)
        mask = inside[:, None]
        if not PADDED:
            y, x = 2 * u[:, None] + dy[None, :], 2 * v[:, None] + dx[None, :]
            mask = mask & (y >= 1) & (y <= height) & (x >= 1) & (x <= width)
        A = tl.load((image + 2 * u * s_row + 2 * v * IN)[:, None] + offset[None, :], mask=mask, other=0.0).T
        shift += tl.sum(tl.where(c == _DEAD, 0.0, g.to(tl.float32)), 0)
        w0 = tl.dot(A, tl.where(c == p, g, 0.0).to(tl.float16), w0)
        w1 = tl.dot(A, tl.where(c == p + 1, g, 0.0).to(tl.float16), w1)
        if STRIP == 16:
            w2 = tl.dot(A, tl.where(c == 2, g, 0.0).to(tl.float16), w2)
            w3 = tl.dot(A, tl.where(c == 3, g, 0.0).to(tl.float16), w3)
    part = client * shares + share
    to = filters + part * (64 * IN * OUT) + ((p * 16 + strip * STRIP) * IN + k)[:, None] * OUT + o[None, :]
    grad_unit = tl.load(grad_unit + client) / keep_probability
    by = tl.load(unit + client) * grad_unit
    tl.store(to, w0 * by)
    tl.store(to + 16 * IN * OUT, w1 * by)
    if STRIP == 16:
        tl.store(to + 32 * IN * OUT, w2 * by)
        tl.store(to + 48 * IN * OUT, w3 * by)
    if z == 0:
        tl.store(biases + part * OUT + o, shift * grad_unit)


@triton.jit
def image_gradient(
    taps, code, grad, grad_unit, largest, strength, images, top, unit_out,
    pixels, height, width, keep_probability,
    IN: tl.constexpr, IN_BLOCK: tl.constexpr, OUT: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """The gradient of the four pixels of each pooled pixel, from its window and the eight windows around it.

    Channels are innermost.
    """
    client = tl.program_id(1).to(tl.int64)
    m, inside, b, u, v = _pixels(tl.program_id(0) * PIXELS, pixels, height, width, PIXELS)
    rows, columns = height // 2, width // 2
    grad += client * pixels * OUT
    code += client * pixels * OUT
    i, o = tl.arange(0, IN_BLOCK), tl.arange(0, OUT)
    w = taps + client * (9 * IN * OUT) + i[:, None] * OUT + o[None, :]
    in_w = (i < IN)[:, None]
    a0 = tl.zeros((PIXELS, IN_BLOCK), tl.float32)
    a1, a2, a3 = a0, a0, a0
    for window in tl.static_range(9):
        du, dv = window // 3 - 1, window % 3 - 1
        mask = inside & (u + du >= 0) & (u + du < rows) & (v + dv >= 0) & (v + dv < columns)
        at = (m + du * columns + dv)[:, None] * OUT + o[None, :]
        g = tl.load(grad + at, mask=mask[:, None], other=0.0)
        c = tl.load(code + at, mask=mask[:, None], other=_DEAD)
        for p in tl.static_range(4):
            # Pixel p of the window is at offset (y, x) from our first pixel; our pixel r is its tap r - (y, x) + 1.
            y, x = 2 * du + p // 2, 2 * dv + p % 2
            if y >= -1 and y <= 2 and x >= -1 and x <= 2:
                gp = tl.where(c == p, g, 0.0).to(tl.float16)
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
    strong = tl.load(strength + client)
    by = unit_of(strong) * (tl.load(grad_unit + client) / keep_probability)
    a0, a1, a2, a3 = a0 * by, a1 * by, a2 * by, a3 * by
    largest_of_four = tl.maximum(tl.maximum(magnitude(a0), magnitude(a1)), tl.maximum(magnitude(a2), magnitude(a3)))
    tl.atomic_max(top + client, tl.max(tl.max(largest_of_four, 1), 0))
    to = unit_of(9 * OUT * strong * tl.load(largest + client) / keep_probability)
    at = images + client * (4 * pixels * IN) + ((b * height + 2 * u) * width + 2 * v)[:, None] * IN + i[None, :]
    out = inside[:, None] & (i < IN)[None, :]
    tl.store(at, (a0 / to).to(tl.float16), mask=out)
    tl.store(at + IN, (a1 / to).to(tl.float16), mask=out)
    tl.store(at + width * IN, (a2 / to).to(tl.float16), mask=out)
    tl.store(at + width * IN + IN, (a3 / to).to(tl.float16), mask=out)
    if tl.program_id(0) == 0:
        tl.store(unit_out + client, to)
