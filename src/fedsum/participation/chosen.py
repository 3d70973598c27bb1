"""Schedules in which the server chooses S of N clients per round: Cases 1, 3 and 4 of the paper."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..base.checks import integer, set_fields
from ..base.keyed import Purpose, rng
from .schedule import Ids, Pattern


@dataclass(frozen=True)
class Chosen:
    """n clients, `size` of them active per round; N and S in the paper.

    Args:
      n: N, the number of clients.
      size: S, the number of active clients per round.
    """

    n: int
    size: int

    def __post_init__(self) -> None:
        n = integer("n", self.n, low=1)
        set_fields(self, n=n, size=integer("size", self.size, low=1, high=n, high_name="n"))


@dataclass(frozen=True)
class Uniform(Chosen):
    """Case 1, the paper's P1: S of N clients, uniformly without replacement.

    >>> Uniform(100, 5).active(seed=0, round=3)
    array([ 1,  8, 31, 88, 98])
    """

    def active(self, seed: int, round: int) -> Ids:
        draw = rng(seed, Purpose.SCHEDULE, round)
        return np.sort(draw.choice(self.n, size=self.size, replace=False, shuffle=False))

    def describe(self, rounds: int | None = None) -> Pattern:
        return Pattern(N=self.n, case=1, S=self.size)


@dataclass(frozen=True)
class Cyclic(Chosen):
    """Case 3: blocks of S consecutive clients in a fixed order, wrapping around.

    >>> [Cyclic(5, 2).active(seed=0, round=t).tolist() for t in range(3)]
    [[0, 1], [2, 3], [0, 4]]
    """

    def active(self, seed: int, round: int) -> Ids:
        return np.sort((round * self.size + np.arange(self.size)) % self.n)

    def describe(self, rounds: int | None = None) -> Pattern:
        return Pattern(N=self.n, case=3, S=self.size)


@dataclass(frozen=True)
class Reshuffled(Chosen):
    """Case 4: cyclic, with a new random order per epoch of ceil(N/S) rounds.

    The last block of an epoch wraps around within the epoch's order.

    >>> sorted(i for t in range(3) for i in Reshuffled(6, 2).active(seed=0, round=t).tolist())
    [0, 1, 2, 3, 4, 5]
    """

    def active(self, seed: int, round: int) -> Ids:
        epoch, block = divmod(round, -(-self.n // self.size))
        places = (block * self.size + np.arange(self.size)) % self.n
        return np.sort(_order(self.n, seed, epoch)[places])

    def describe(self, rounds: int | None = None) -> Pattern:
        return Pattern(N=self.n, case=4, S=self.size)


@lru_cache(maxsize=4)
def _order(n: int, seed: int, epoch: int) -> Ids:
    # Cached for the rounds of an epoch, so that a round costs O(S) instead of O(N).
    return rng(seed, Purpose.SCHEDULE, epoch).permutation(n)
