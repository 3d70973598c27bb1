"""A schedule with a minimum separation between two rounds of one client."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ..base.checks import integer, set_fields
from ..base.keyed import Purpose, rng
from .pool import drawn_from
from .replay import Replay
from .schedule import Ids, Pattern


@dataclass(frozen=True)
class Spaced:
    """S clients per round, drawn uniformly from those that were not active in the last `separation` - 1 rounds.

    The pattern of matrix mechanisms for differential privacy, where it is called minimum separation. Separation 1 is
    `Uniform`. A round depends on earlier rounds, which are computed first, at a cost of O(S) per round.

    Args:
      n: N, the number of clients.
      size: S, the number of active clients per round.
      separation: minimum number of rounds from one active round of a client to its next; at most n // size.

    >>> [Spaced(6, 2, separation=3).active(seed=0, round=t).tolist() for t in range(4)]
    [[0, 5], [2, 3], [1, 4], [0, 5]]
    """

    n: int
    size: int
    separation: int
    _replay: Replay[Ids] = field(default_factory=Replay, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        n = integer("n", self.n, low=1)
        size = integer("size", self.size, low=1, high=n, high_name="n")
        separation = integer("separation", self.separation, low=1, high=n // size, high_name="n // size")
        set_fields(self, n=n, size=size, separation=separation)

    def active(self, seed: int, round: int) -> Ids:
        return self._replay.at(seed, integer("round", round, low=0), self._rounds).copy()

    def _rounds(self, seed: int, sets: list[Ids]) -> Iterator[Ids]:
        # The first `free` entries of `pool` are the clients that may be drawn.
        pool, free = np.arange(self.n), self.n
        while True:
            t = len(sets)
            if t >= self.separation:
                pool[free : free + self.size] = sets[t - self.separation]
                free += self.size
            drawn = drawn_from(pool, free, self.size, rng(seed, Purpose.SCHEDULE, t))
            free -= self.size
            yield drawn

    def describe(self, rounds: int | None = None) -> Pattern:
        return Pattern(N=self.n)
