"""Triton functions for float16 factors: the ten bits of tf32 at half the traffic, and readable across pixels without a
transposition.

Each client has a unit, a power of two, that scales its values to the range of float16: factors are below 2^15.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
import triton
import triton.language as tl

TINY = 0x00800000
"""the bits of the smallest normal float32"""
_LEAST = tl.constexpr(2.0**-100)
_MOST = tl.constexpr(2.0**126)


@triton.jit
def _power(x):
    """The largest power of two not above x, which is positive and not subnormal."""
    return (x.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)


@triton.jit
def unit_of(bound):
    """A power of two that scales magnitudes up to the bound below 2^15."""
    return _power(tl.minimum(tl.maximum(bound, _LEAST), _MOST)) * (1.0 / 16384.0)


@triton.jit
def magnitude(x):
    """The bits of |x| as an integer, which order like the values; zero if x is not finite."""
    bits = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    return tl.where(bits < 0x7F800000, bits, 0)


@triton.jit
def largest_value(values, largest, elements, BLOCK: tl.constexpr):
    """The largest magnitude per client."""
    client = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = magnitude(tl.load(values + client * elements + n, mask=n < elements, other=0.0))
    tl.atomic_max(largest + client, tl.max(v, 0))


@triton.jit
def factors_of(values, largest, factors, unit, elements, BLOCK: tl.constexpr):
    """Values of each client divided by its unit, as float16."""
    client = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = n < elements
    to = unit_of(tl.load(largest + client))
    v = tl.load(values + client * elements + n, mask=mask, other=0.0)
    tl.store(factors + client * elements + n, (v / to).to(tl.float16), mask=mask)
    if tl.program_id(0) == 0:
        tl.store(unit + client, to)
