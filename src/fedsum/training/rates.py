"""Learning rates that change with the round: what a file can say, and what a resumed run can compare."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..base.checks import InputError, integer, keep, real


@dataclass(frozen=True)
class InverseSqrt:
    """eta_l(t) = eta_0 / sqrt(t/over + 1), the paper's schedule.

    Args:
      eta_0: rate of round 0.
      over: rounds until it has fallen by a factor of sqrt(2).

    >>> InverseSqrt(0.01)(30)
    0.005
    """

    eta_0: float = 0.01
    over: float = 10.0

    def __post_init__(self) -> None:
        keep(self, eta_0=real("eta_0", self.eta_0, above=0), over=real("over", self.over, above=0))

    def __call__(self, t: int) -> float:
        return self.eta_0 / math.sqrt(t / self.over + 1)


@dataclass(frozen=True)
class PerRound:
    """A value for each round: how any other function of the round is written down.

    >>> PerRound([0.1, 0.05])(1)
    0.05
    """

    values: Sequence[Any]

    def __post_init__(self) -> None:
        if isinstance(self.values, str) or not isinstance(self.values, Sequence) or not self.values:
            raise InputError("values", self.values, "a list with a value for each round")

    def __call__(self, t: int) -> Any:
        integer("round", t, low=0, high=len(self.values) - 1, high_name="rounds written down")
        return self.values[t]


RATES: dict[str, type[Any]] = {cls.__name__: cls for cls in (InverseSqrt, PerRound)}
