"""The Triton kernels of `conv_pool.py`, which says what they are for.

A pooled pixel sees a patch of 4x4 pixels; its four pixels are p = 0..3, those of the patch q = 0..15, both row by row.
Filters are spread over the patch: spread[p, q] is the tap that pixel p has on q, or zero.

Factors are float16: the ten bits that tf32 has, at half the traffic, and legible across pixels without a transposition.
Images, filters and slopes are scaled by a power of two for each client, to lie within its range.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
import triton
import triton.language as tl

DEAD = 4
"""the code of a pooled pixel that ReLU set to zero"""
_DEAD = tl.constexpr(DEAD)
TINY = 0x00800000
"""the bits of the smallest float32 that can be divided by"""
_TINY = tl.constexpr(TINY)


@triton.jit
def _power(x):
    """The power of two below x, which is positive and no subnormal."""
    return (x.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)


@triton.jit
def _magnitude(x):
    """The bits of |x| as an integer, which order like the numbers; of what is no finite number, zero."""
    bits = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    return tl.where(bits < 0x7F800000, bits, 0)


@triton.jit
def strongest(weight, most, s_client, numbers, TURNS: tl.constexpr, BLOCK: tl.constexpr):
    """The largest filter of each client, whose filters are few enough for one program."""
    client = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK)
    top = tl.zeros((BLOCK,), tl.int32)
    for turn in range(TURNS):
        w = tl.load(weight + client * s_client + turn * BLOCK + n, mask=turn * BLOCK + n < numbers, other=0.0)
        top = tl.maximum(top, _magnitude(w))
    tl.store(most + client, tl.maximum(tl.max(top, 0), _TINY))


@triton.jit
def spread(
    weight, strength, wide, taps, s_client, ins, outs,
    IN: tl.constexpr, OUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Filters [C, outs, ins, 3, 3] over the patch, [C, 4, OUT, 16, IN], and tap by tap, [C, 9, IN, OUT]."""
    client = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    i, q, o, p = n % IN, n // IN % 16, n // (16 * IN) % OUT, n // (16 * IN * OUT)
    y, x = q // 4 - p // 2, q % 4 - p % 2
    there = (p < 4) & (o < outs) & (i < ins) & (y >= 0) & (y < 3) & (x >= 0) & (x < 3)
    w = tl.load(weight + client * s_client + (o * ins + i) * 9 + 3 * y + x, mask=there, other=0.0)
    w = (w / _power(tl.load(strength + client))).to(tl.float16)
    tl.store(wide + client * (64 * IN * OUT) + n, w, mask=p < 4)
    # The first of the four pixels has the taps as they are.
    tap = (p == 0) & (y >= 0) & (y < 3) & (x >= 0) & (x < 3)
    tl.store(taps + client * (9 * IN * OUT) + ((3 * y + x) * IN + i) * OUT + o, w, mask=tap)


@triton.jit
def gathered(
    filters, biases, weight, bias,
    s_weight, s_bias, ins, outs,
    IN: tl.constexpr, OUT: tl.constexpr, OUT_BLOCK: tl.constexpr, SHARES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What `filter_gradient` left of each client, shares and pixels summed: [C, outs, ins, 3, 3] and [C, outs]."""
    client = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    o, i, tap = n % OUT, n // OUT % IN, n // (IN * OUT)
    there = (tap < 9) & (o < outs) & (i < ins)
    total = tl.zeros((BLOCK,), tl.float32)
    filters += client * SHARES * (64 * IN * OUT) + i * OUT + o
    for share in range(SHARES):
        for p in tl.static_range(4):
            q = 4 * (tap // 3 + p // 2) + tap % 3 + p % 2
            total += tl.load(filters + ((share * 4 + p) * 16 + q) * (IN * OUT), mask=there, other=0.0)
    tl.store(weight + client * s_weight + (o * ins + i) * 9 + tap, total, mask=there)
    if tl.program_id(0) == 0:
        c = tl.arange(0, OUT_BLOCK)
        shift = tl.zeros((OUT_BLOCK,), tl.float32)
        for share in range(SHARES):
            shift += tl.load(biases + (client * SHARES + share) * OUT + c, mask=c < outs, other=0.0)
        tl.store(bias + client * s_bias + c, shift, mask=c < outs)


@triton.jit
def largest(values, code, most, numbers, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    """The largest magnitude of each client; of slopes, only of those that ReLU lets pass."""
    client = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = _magnitude(tl.load(values + client * numbers + n, mask=n < numbers, other=0.0))
    if MASKED:
        c = tl.load(code + client * numbers + n, mask=n < numbers, other=_DEAD)
        v = tl.where(c == _DEAD, 0, v)
    tl.atomic_max(most + client, tl.max(v, 0))


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
def forward(
    images, spread, bias, seed, largest, strength, pooled, code, top,
    pixels, height, width, s_client, s_image, s_row, s_column, s_channel, s_bias, outs, kept,
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
    wide = _power(tl.load(largest + client))
    narrow = 1.0 / wide
    strong = _power(tl.load(strength + client))
    if WHOLE:
        A = _patches(images, b, u, v, inside, k, height, width, s_image, s_row, s_column, s_channel, IN)
        A = (A * narrow).to(tl.float16)
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
            A = (A * narrow).to(tl.float16)
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
    shift = tl.load(bias + client * s_bias + o, mask=o < outs, other=0.0)[None, :]
    a0 = a0 * strong * wide + shift
    a1 = a1 * strong * wide + shift
    a2 = a2 * strong * wide + shift
    a3 = a3 * strong * wide + shift
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
    best = tl.where(dead, 0.0, best)
    tl.store(pooled + at, best, mask=out)
    tl.atomic_max(top + client, tl.max(tl.max(tl.where(out, _magnitude(best), 0), 1), 0))
    tl.store(code + at, tl.where(dead, _DEAD, which).to(tl.int8), mask=out)


@triton.jit
def filter_gradient(
    images, code, slope, largest, steepest, filters, biases,
    pixels, height, width, s_client, s_image, s_row, s_column, s_channel, kept,
    IN: tl.constexpr, IN_BLOCK: tl.constexpr, OUT: tl.constexpr, OUT_BLOCK: tl.constexpr, PIXELS: tl.constexpr,
    STRIP: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """The gradient of `spread` over a share of the pixels: all of it, or what two pixels have on a row of the patch.

    Written is what has a tap, and more: what has none is left as it was.
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
    wide, steep = _power(tl.load(largest + client)), _power(tl.load(steepest + client))
    narrow, flat = 1.0 / wide, 1.0 / steep
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
    wide = wide * (steep / kept)
    tl.store(to, w0 * wide, mask=in_w)
    tl.store(to + 16 * IN * OUT, w1 * wide, mask=in_w)
    if STRIP == 16:
        tl.store(to + 32 * IN * OUT, w2 * wide, mask=in_w)
        tl.store(to + 48 * IN * OUT, w3 * wide, mask=in_w)
    if z == 0:
        tl.store(biases + part * OUT + o, shift / kept, mask=o < OUT)


@triton.jit
def image_gradient(
    taps, code, slope, steepest, strength, images,
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
    steep = _power(tl.load(steepest + client))
    flat = 1.0 / steep
    for window in tl.static_range(9):
        du, dv = window // 3 - 1, window % 3 - 1
        there = inside & (u + du >= 0) & (u + du < rows) & (v + dv >= 0) & (v + dv < columns)
        at = (m + du * columns + dv)[:, None] * OUT + o[None, :]
        there = there[:, None] & (o < OUT)[None, :]
        g = (tl.load(slope + at, mask=there, other=0.0) * flat).to(tl.float16)
        c = tl.load(code + at, mask=there, other=_DEAD)
        for p in tl.static_range(4):
            # Pixel p of that window lies at (y, x) from the first of ours; pixel r of ours is its tap r - (y, x) + 1.
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
    to = images + client * (4 * pixels * IN) + ((b * height + 2 * u) * width + 2 * v)[:, None] * IN + i[None, :]
    out = inside[:, None] & (i < IN)[None, :]
    steep /= kept
    strong = _power(tl.load(strength + client))
    tl.store(to, a0 * strong * steep, mask=out)
    tl.store(to + IN, a1 * strong * steep, mask=out)
    tl.store(to + width * IN, a2 * strong * steep, mask=out)
    tl.store(to + width * IN + IN, a3 * strong * steep, mask=out)
