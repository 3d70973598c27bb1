"""Local learning rates that change with the round, and their form in files."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..base.checks import InputError, integer, probability, real, set_fields
from ..base.registry import build, refuse_digest, split
from ..base.toml_values import bounded, plain

Rate = float | Callable[[int], float]


@dataclass(frozen=True)
class _Warm(ABC):
    """A rate with a linear warm-up: eta_0 (t + 1) / (warmup + 1) in the first `warmup` rounds t."""

    eta_0: float = 0.01
    warmup: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        set_fields(self, eta_0=real("eta_0", self.eta_0, above=0), warmup=integer("warmup", self.warmup, low=0))

    def __call__(self, t: int) -> float:
        if t < self.warmup:
            return self.eta_0 * (t + 1) / (self.warmup + 1)
        return self.after_warmup(t - self.warmup)

    @abstractmethod
    def after_warmup(self, t: int) -> float:
        """The rate t rounds after the warm-up."""


@dataclass(frozen=True)
class Constant(_Warm):
    """eta_l(t) = eta_0, after the warm-up.

    Args:
      eta_0: rate after the warm-up.
      warmup: rounds of linear warm-up before.

    >>> [round(Constant(0.1, warmup=3)(t), 3) for t in range(5)]
    [0.025, 0.05, 0.075, 0.1, 0.1]
    """

    def after_warmup(self, t: int) -> float:
        return self.eta_0


@dataclass(frozen=True)
class InverseSqrt(_Warm):
    """eta_l(t) = eta_0 / sqrt(t/over + 1), the paper's schedule; t counts from the end of the warm-up.

    Args:
      eta_0: rate of round 0.
      over: rounds until the rate has fallen by a factor of sqrt(2).
      warmup: rounds of linear warm-up before.

    >>> InverseSqrt(0.01)(30)
    0.005
    """

    over: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, over=real("over", self.over, above=0))

    def after_warmup(self, t: int) -> float:
        return self.eta_0 / math.sqrt(t / self.over + 1)


@dataclass(frozen=True)
class Exponential(_Warm):
    """eta_l(t) = eta_0 decay^t; t counts from the end of the warm-up.

    Args:
      eta_0: rate of round 0.
      decay: the factor per round, in (0, 1].
      warmup: rounds of linear warm-up before.

    >>> round(Exponential(0.1, decay=0.998)(1000), 4)
    0.0135
    """

    decay: float = 0.998

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, decay=probability("decay", self.decay))

    def after_warmup(self, t: int) -> float:
        return self.eta_0 * self.decay**t


@dataclass(frozen=True)
class Cosine(_Warm):
    """eta_l(t) = eta_0 (end + (1 - end) (1 + cos(pi t / over)) / 2), then end eta_0; t counts from the warm-up's end.

    Args:
      eta_0: rate of round 0.
      over: rounds until the rate is end eta_0.
      end: the last rate as a multiple of eta_0, in (0, 1].
      warmup: rounds of linear warm-up before.

    >>> [round(Cosine(0.1, over=100)(t), 4) for t in (0, 50, 100, 150)]
    [0.1, 0.0505, 0.001, 0.001]
    """

    over: int = 1000
    end: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, over=integer("over", self.over, low=1), end=probability("end", self.end))

    def after_warmup(self, t: int) -> float:
        share = (1 + math.cos(math.pi * min(t, self.over) / self.over)) / 2
        return self.eta_0 * (self.end + (1 - self.end) * share)


@dataclass(frozen=True)
class Step(_Warm):
    """eta_l(t) = eta_0 drop^floor(t / every); t counts from the end of the warm-up.

    Args:
      eta_0: rate of round 0.
      every: rounds between two drops.
      drop: the factor per drop, in (0, 1].
      warmup: rounds of linear warm-up before.

    >>> [round(Step(0.1, every=10, drop=0.5)(t), 4) for t in (9, 10, 20)]
    [0.1, 0.05, 0.025]
    """

    every: int = 100
    drop: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, every=integer("every", self.every, low=1), drop=probability("drop", self.drop))

    def after_warmup(self, t: int) -> float:
        return self.eta_0 * self.drop ** (t // self.every)


@dataclass(frozen=True)
class PerRound:
    """A learning rate as a list, one value per round. Files record your own function of the round in this form.

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


RATES: dict[str, type[Any]] = {
    cls.__name__: cls for cls in (Constant, InverseSqrt, Exponential, Cosine, Step, PerRound)
}
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
        values = {field.name: getattr(rate, field.name) for field in fields(cls)}
        if values.get("warmup") == 0:
            del values["warmup"]  # settings without a warm-up look as in earlier versions
        return {"name": cls.__name__, **values}
    return plain(rate, rounds)


def rate_values(table: Any, rounds: int) -> list[float]:
    """The values over `rounds` rounds of a rate from a file. Two rates are equal if their values are."""
    rate = parse_rate(table)
    return [float(rate(t)) for t in range(rounds)] if callable(rate) else [float(rate)] * rounds


def check_rate(field: str, rate: Any) -> Rate:
    if callable(rate):
        return rate  # type: ignore[no-any-return]  # its values are checked round by round
    if isinstance(rate, Sequence) and not isinstance(rate, str):
        raise InputError(field, rate, "a number, or a function of the round, such as fedsum.PerRound(values)")
    return real(field, rate, above=0)
