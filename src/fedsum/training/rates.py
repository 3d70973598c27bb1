"""Local learning rates that change with the round, and their form in files."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..base.checks import InputError, integer, real, set_fields
from ..base.registry import build, refuse_digest, split
from ..base.toml_values import bounded, plain

Rate = float | Callable[[int], float]


@dataclass(frozen=True)
class InverseSqrt:
    """eta_l(t) = eta_0 / sqrt(t/over + 1), the paper's schedule.

    Args:
      eta_0: rate of round 0.
      over: rounds until the rate has fallen by a factor of sqrt(2).

    >>> InverseSqrt(0.01)(30)
    0.005
    """

    eta_0: float = 0.01
    over: float = 10.0

    def __post_init__(self) -> None:
        set_fields(self, eta_0=real("eta_0", self.eta_0, above=0), over=real("over", self.over, above=0))

    def __call__(self, t: int) -> float:
        return self.eta_0 / math.sqrt(t / self.over + 1)


@dataclass(frozen=True)
class PerRound:
    """One value per round. Files record any other function of the round in this form.

    >>> PerRound([0.1, 0.05])(1)
    0.05
    """

    values: Sequence[Any]

    def __post_init__(self) -> None:
        if isinstance(self.values, str) or not isinstance(self.values, Sequence) or not self.values:
            raise InputError("values", self.values, "a list with one value per round")
        set_fields(self, values=list(self.values))

    def __call__(self, t: int) -> Any:
        integer("round", t, low=0, high=len(self.values) - 1, high_name="rounds with a value")
        return self.values[t]


RATES: dict[str, type[Any]] = {cls.__name__: cls for cls in (InverseSqrt, PerRound)}
"""rates that files can name; a new class is added here"""


def parse_rate(table: Any, field: str = "eta_l") -> Any:
    """A rate from a file: a number, a list with one value per round, or a table with a name and fields."""
    if isinstance(table, list):
        return PerRound([real(field, value, above=0) for value in table])
    if not isinstance(table, Mapping):
        return table  # the option's check refuses anything but a number
    refuse_digest(field, table)
    name, fields = split(field, table)
    return build(field, RATES, name, fields)


def dump_rate(rate: Rate, rounds: int) -> Any:
    """The inverse of `parse_rate`. A function that is not in RATES becomes its values over the run's rounds."""
    if type(rate) is PerRound:
        values = plain(rate.values, rounds)
        return values if isinstance(values, dict) else bounded({"name": "PerRound", "values": values}, values)
    cls: type[Any] = type(rate)
    if cls in RATES.values():
        return {"name": cls.__name__, **{field.name: getattr(rate, field.name) for field in fields(cls)}}
    return plain(rate, rounds)


def rate_values(table: Any, rounds: int) -> list[float]:
    """The values over `rounds` rounds of a rate from a file. Two rates are equal if their values are."""
    rate = parse_rate(table)
    return [float(rate(t)) for t in range(rounds)] if callable(rate) else [float(rate)] * rounds


def check_rate(field: str, rate: Any) -> Rate:
    if callable(rate):
        return rate  # type: ignore[no-any-return]  # its values are checked round by round
    return real(field, rate, above=0)
