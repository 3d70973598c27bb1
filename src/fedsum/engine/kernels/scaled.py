"""Values of a cohort as float16 factors with one unit per client.

The kernels are in `scaled_kernels.py`.
"""

# mypy: allow-untyped-calls
from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from . import scaled_kernels

_BLOCK = 1024
"""elements per program of a kernel that works element by element"""


@dataclass(frozen=True)
class Scaled:
    """Values of a cohort as float16 factors, with one unit per client."""

    factors: Tensor
    """float16, channels innermost and padded with zeros"""
    unit: Tensor
    """the value of a factor of one, per client"""
    largest: Tensor
    """the largest magnitude per client, never zero"""


def to_factors(values: Tensor, largest: Tensor | None = None) -> Scaled:
    """Contiguous float32 values [C, ...] as factors; `largest` is their largest magnitude per client, if known."""
    largest = largest_of(values) if largest is None else largest
    factors, unit = torch.empty_like(values, dtype=torch.float16), values.new_empty(len(values))
    elements = values[0].numel()
    scaled_kernels.factors_of[(triton.cdiv(elements, _BLOCK), len(values))](
        values, largest, factors, unit, elements, _BLOCK
    )
    return Scaled(factors, unit, largest)


def unit_of(largest: Tensor) -> Tensor:
    """As in the kernels: a power of two that scales magnitudes up to `largest` below 2^15."""
    bits = largest.clamp(2.0**-100, 2.0**126).view(torch.int32) & 0x7F800000
    return bits.view(torch.float32) / 16384


def smallest_bits(values: Tensor) -> Tensor:
    """Per client the bits of the smallest normal float32, the initial value of a maximum."""
    return torch.full((len(values),), scaled_kernels.TINY, dtype=torch.int32, device=values.device)


def largest_of(values: Tensor) -> Tensor:
    """The largest magnitude per client, never zero."""
    largest, elements = smallest_bits(values), values[0].numel()
    scaled_kernels.largest_value[(triton.cdiv(elements, 4 * _BLOCK), len(values))](
        values, largest, elements, 4 * _BLOCK
    )
    return largest.view(torch.float32)


def power_of_two(elements: int) -> int:
    return int(triton.next_power_of_2(elements))
