"""Schedules in which clients are active independently of each other: Case 2 of the paper, and patterns based on it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..base.checks import InputError, integer, probability, real, set_fields
from ..base.keyed import Purpose, rng
from .schedule import Ids, Pattern

Probability = float | NDArray[np.float64]


def bernoulli(draw: np.random.Generator, n: int, p: float) -> Ids:
    """Sorted ids of the active clients, if each of n clients is active independently with probability p.

    Draws the number of active clients from the binomial distribution, then the clients. The distribution is that of n
    independent draws; the cost is proportional to the number of active clients, not to n.
    """
    return np.sort(draw.choice(n, size=draw.binomial(n, p), replace=False, shuffle=False))


class Coins:
    """Independent draws with one probability per client, at a cost proportional to the number of active clients.

    Clients are put into groups whose probabilities differ by a factor of at most two. Candidates of a group are drawn
    with the group's largest probability, then accepted in proportion to their own. On average at least half of the
    candidates are accepted.
    """

    def __init__(self, p: NDArray[np.float64]) -> None:
        self._groups = []
        exponents = np.floor(np.log2(p))
        for exponent in np.unique(exponents):
            ids = np.flatnonzero(exponents == exponent)
            self._groups.append((ids, p[ids], float(p[ids].max())))

    def toss(self, draw: np.random.Generator) -> Ids:
        """Sorted ids of the active clients."""
        active = []
        for ids, p, largest in self._groups:
            candidates = bernoulli(draw, len(ids), largest)
            accepted = candidates[draw.random(len(candidates)) * largest < p[candidates]]
            active.append(ids[accepted])
        return np.sort(np.concatenate(active))


def as_probability(field: str, value: Any, n: int) -> Probability:
    """`value` as a number or a vector of n numbers in (0, 1], or an InputError that names `field`."""
    if isinstance(value, Mapping):
        accepted = "numbers in the order of the clients' ids, such as [p[name] for name in task.client_names]"
        raise InputError(field, type(value).__name__, accepted)
    try:
        if np.ndim(value) == 0:
            return probability(field, value)
        p = np.asarray(value, dtype=np.float64)
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError):
        raise InputError(field, value, f"a number, or a vector of n = {n} numbers, in (0, 1]") from None
    if p.shape != (n,):
        raise InputError(f"{field} of shape", p.shape, f"a vector of n = {n} probabilities in (0, 1]")
    invalid = np.flatnonzero(~((p > 0) & (p <= 1)))
    if len(invalid):
        raise InputError(f"{field}[{invalid[0]}]", float(p[invalid[0]]), "a probability in (0, 1]")
    return p


@dataclass(frozen=True, eq=False)
class Independent:
    """Case 2: client i is active in round t with probability p_i^t, independently (the paper's P2: p = S/N).

    Args:
      n: N, the number of clients.
      p: a number, a vector of n numbers, or a function of the round that returns either; all in (0, 1].

    >>> Independent(5, 0.5).active(seed=0, round=1)
    array([0, 1, 2])
    """

    n: int
    p: float | ArrayLike | Callable[[int], float | ArrayLike]

    def __post_init__(self) -> None:
        set_fields(self, n=integer("n", self.n, low=1))
        if not callable(self.p):
            set_fields(self, p=as_probability("p", self.p, self.n))

    def probability(self, round: int) -> Probability:
        """p^t: the probability of all clients, or a vector of one probability per client."""
        if callable(self.p):
            return as_probability(f"p({round})", self.p(round), self.n)
        return self.p  # type: ignore[return-value]  # checked and converted at construction

    def active(self, seed: int, round: int) -> Ids:
        draw, p = rng(seed, Purpose.SCHEDULE, round), self.probability(round)
        if isinstance(p, float):
            return bernoulli(draw, self.n, p)
        return (Coins(p) if callable(self.p) else self._coins).toss(draw)

    @cached_property
    def _coins(self) -> Coins:
        return Coins(np.asarray(self.p))

    def describe(self, rounds: int | None = None) -> Pattern:
        if not callable(self.p):
            rounds = 1
        if rounds is None:
            return Pattern(N=self.n)
        delta = min(float(np.min(self.probability(t))) for t in range(rounds))
        return Pattern(N=self.n, case=2, delta=delta)


@dataclass(frozen=True)
class Sine:
    """The paper's P3: every client is active in round t with probability S/N * (0.3 sin(pi t / 5) + 0.7).

    Args:
      n: N, the number of clients.
      size: S; about S clients are active at the peak of the sine, and about 0.4 S at its trough.

    >>> Sine(100, 20).describe().delta  # the lowest probability, in rounds 7 and 8 of every ten
    0.0829...
    """

    n: int
    size: int

    def __post_init__(self) -> None:
        n = integer("n", self.n, low=1)
        set_fields(self, n=n, size=integer("size", self.size, low=1, high=n, high_name="n"))

    def probability(self, round: int) -> float:
        return self.size / self.n * (0.3 * math.sin(math.pi * round / 5) + 0.7)

    def active(self, seed: int, round: int) -> Ids:
        return bernoulli(rng(seed, Purpose.SCHEDULE, round), self.n, self.probability(round))

    def describe(self, rounds: int | None = None) -> Pattern:
        return Pattern(N=self.n, case=2, delta=min(self.probability(t) for t in range(10)))


@dataclass(frozen=True)
class Biased:
    """The paper's biased sampling: groups of 11 clients. The first group has probability 0.5, each next one 0.05 less.

    Args:
      n: N, the number of clients.
      start: the probability that a client of the first group is active.
      drop: how much smaller the probability is in each following group.
      group: clients per group.
      floor: the lowest probability.

    >>> Biased(100).probability()[[0, 11, 99]]
    array([0.5 , 0.45, 0.05])
    """

    n: int
    start: float = 0.5
    drop: float = 0.05
    group: int = 11
    floor: float = 0.05

    def __post_init__(self) -> None:
        set_fields(
            self,
            n=integer("n", self.n, low=1),
            start=probability("start", self.start),
            drop=real("drop", self.drop, low=0),
            group=integer("group", self.group, low=1),
            floor=probability("floor", self.floor),
        )

    def probability(self) -> NDArray[np.float64]:
        groups = np.arange(self.n) // self.group
        return np.clip(self.start - self.drop * groups, self.floor, 1.0)

    def active(self, seed: int, round: int) -> Ids:
        return self._independent.active(seed, round)

    def describe(self, rounds: int | None = None) -> Pattern:
        return self._independent.describe()

    @cached_property
    def _independent(self) -> Independent:
        return Independent(self.n, self.probability())
