"""Distributions of positive numbers, from which clients' devices are drawn."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..base.checks import InputError, real, set_fields


class Distribution(Protocol):
    """A distribution that a settings file can name. Distributions are frozen dataclasses."""

    def draw(self, generator: np.random.Generator, size: int) -> NDArray[np.float64]: ...


@dataclass(frozen=True)
class LogUniform:
    """A log-uniform distribution between `low` and `high`: each factor of two is as likely as any other.

    >>> LogUniform(1, 10).draw(np.random.default_rng(0), 2).round(2)
    array([4.33, 1.86])
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        low, high = real("low", self.low, above=0), real("high", self.high, above=0)
        if high < low:
            raise InputError("high", high, f"at least low = {low}")
        set_fields(self, low=low, high=high)

    def draw(self, generator: np.random.Generator, size: int) -> NDArray[np.float64]:
        return self.low * (self.high / self.low) ** generator.random(size)


@dataclass(frozen=True)
class LogNormal:
    """A log-normal distribution: half of the values are below `median`, two thirds within a factor of exp(`spread`).

    >>> LogNormal(1.0, 0.5).draw(np.random.default_rng(0), 2).round(2)
    array([1.06, 0.94])
    """

    median: float
    spread: float

    def __post_init__(self) -> None:
        set_fields(self, median=real("median", self.median, above=0), spread=real("spread", self.spread, low=0))

    def draw(self, generator: np.random.Generator, size: int) -> NDArray[np.float64]:
        exponents: NDArray[np.float64] = math.log(self.median) + self.spread * generator.standard_normal(size)
        return np.exp(exponents)


DISTRIBUTIONS: dict[str, type[LogUniform | LogNormal]] = {"LogUniform": LogUniform, "LogNormal": LogNormal}
"""the distributions that a file can name"""
