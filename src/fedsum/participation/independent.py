"""Every client tosses its own coin: Case 2 of the paper, and the patterns made from it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..base.checks import InputError, integer, keep, probability, real
from ..base.keyed import Purpose, rng
from .schedule import Ids, Pattern

Probability = float | NDArray[np.float64]


def bernoulli(draw: np.random.Generator, n: int, p: float) -> Ids:
    """Sorted ids of the clients whose coins came up.

    A binomial count, then that many clients: the distribution of n independent coins, at a cost that grows with
    the number of active clients and not with n.
    """
    return np.sort(draw.choice(n, size=draw.binomial(n, p), replace=False, shuffle=False))


class Coins:
    """A probability for each client, drawn at a cost that grows with the active clients.

    Clients are put into groups whose probabilities differ by a factor of at most two. A group is drawn with its
    largest probability and then thinned to each client's own, so that at least half of those drawn stay.
    """

    def __init__(self, p: NDArray[np.float64]) -> None:
        self._groups = []
        octave = np.floor(np.log2(p))
        for each in np.unique(octave):
            ids = np.flatnonzero(octave == each)
            self._groups.append((ids, p[ids], float(p[ids].max())))

    def toss(self, draw: np.random.Generator) -> Ids:
        found = []
        for ids, p, top in self._groups:
            some = bernoulli(draw, len(ids), top)
            found.append(ids[some[draw.random(len(some)) * top < p[some]]])
        return np.sort(np.concatenate(found))


def as_probability(field: str, value: Any, n: int) -> Probability:
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
    wrong = np.flatnonzero(~((p > 0) & (p <= 1)))
    if len(wrong):
        raise InputError(f"{field}[{wrong[0]}]", float(p[wrong[0]]), "a probability in (0, 1]")
    return p


@dataclass(frozen=True, eq=False)
class Independent:
    """Case 2: client i takes part in round t with probability p_i^t, independently (the paper's P2: p = S/N).

    Args:
      n: N, the number of clients.
      p: a number, a vector of n numbers, or a function of the round that returns either; all in (0, 1].

    >>> Independent(5, 0.5).active(seed=0, round=1)
    array([0, 1, 2])
    """

    n: int
    p: float | ArrayLike | Callable[[int], float | ArrayLike]

    def __post_init__(self) -> None:
        keep(self, n=integer("n", self.n, low=1))
        if not callable(self.p):
            keep(self, p=as_probability("p", self.p, self.n))

    def probability(self, round: int) -> Probability:
        """p^t, a number or a vector."""
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
    """The paper's P3: probability S/N * (0.3 sin(pi t / 5) + 0.7), the same for every client.

    >>> Sine(100, 20).describe().delta  # at its lowest, in rounds 7 and 8 of every ten
    0.0829...
    """

    n: int
    size: int

    def __post_init__(self) -> None:
        n = integer("n", self.n, low=1)
        keep(self, n=n, size=integer("size", self.size, low=1, high=n, high_name="n"))

    def probability(self, round: int) -> float:
        return self.size / self.n * (0.3 * math.sin(math.pi * round / 5) + 0.7)

    def active(self, seed: int, round: int) -> Ids:
        return bernoulli(rng(seed, Purpose.SCHEDULE, round), self.n, self.probability(round))

    def describe(self, rounds: int | None = None) -> Pattern:
        return Pattern(N=self.n, case=2, delta=min(self.probability(t) for t in range(10)))


@dataclass(frozen=True)
class Biased:
    """The paper's biased sampling: groups of 11 clients, probability 0.5 for the first, 0.05 less for each next.

    Args:
      n: N, the number of clients.
      start: probability of the first group.
      drop: how much less for each next group.
      group: clients a group.
      floor: no probability is lower than this.

    >>> Biased(100).probability()[[0, 11, 99]]
    array([0.5 , 0.45, 0.05])
    """

    n: int
    start: float = 0.5
    drop: float = 0.05
    group: int = 11
    floor: float = 0.05

    def __post_init__(self) -> None:
        keep(
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
