"""Clients that stay on for a while and off for a while."""

from dataclasses import dataclass, field

import numpy as np

from ..base.checks import integer, keep, probability
from ..base.keyed import Purpose, rng
from .independent import bernoulli
from .schedule import Ids, Pattern

_SNAPSHOT_EVERY = 64


@dataclass(frozen=True)
class Markov:
    """Two-state Markov availability of each client, started in its stationary distribution.

    The chain has to be walked, at O(active clients) a round; the walk is remembered every 64 rounds, so
    asking for any earlier round again costs at most 64 steps.

    Args:
      n: N, the number of clients.
      on: probability that an active client stays active, below 1.
      off: probability that an absent client stays absent, below 1.

    >>> Markov(100, on=0.9, off=0.98).describe().delta  # however long a client was away
    0.02...
    """

    n: int
    on: float
    off: float
    _walk: dict[tuple[int, int], Ids] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        keep(
            self,
            n=integer("n", self.n, low=1),
            on=probability("on", self.on, zero=True, one=False),
            off=probability("off", self.off, zero=True, one=False),
        )

    @property
    def share(self) -> float:
        """The stationary probability of being active."""
        return (1 - self.off) / (2 - self.on - self.off)

    def active(self, seed: int, round: int) -> Ids:
        integer("round", round, low=0)
        if (seed, 0) not in self._walk:
            self._walk[seed, 0] = bernoulli(rng(seed, Purpose.SCHEDULE, 0), self.n, self.share)
        known = round
        while (seed, known) not in self._walk:
            known -= 1
        ids = self._walk[seed, known]
        for t in range(known + 1, round + 1):
            ids = self._walk[seed, t] = self._step(ids, seed, t)
            if (t - 1) % _SNAPSHOT_EVERY:
                self._walk.pop((seed, t - 1), None)
        return ids.copy()

    def _step(self, ids: Ids, seed: int, t: int) -> Ids:
        draw = rng(seed, Purpose.SCHEDULE, t)
        staying = ids[draw.random(len(ids)) < self.on]
        # Joiners are drawn as ranks among the absent: rank r is the id r + (active ids before it).
        ranks = bernoulli(draw, self.n - len(ids), 1 - self.off) if len(ids) < self.n else ids[:0]
        joining = ranks + np.searchsorted(ids - np.arange(len(ids)), ranks, side="right")
        return np.sort(np.concatenate([staying, joining]))

    def describe(self, rounds: int | None = None) -> Pattern:
        # Lemma 2 of the paper's appendix asks only that a client's chance to take part is at least delta
        # in every round given the past, and that is the smaller of the two chances here.
        delta = min(self.on, 1 - self.off)
        return Pattern(N=self.n, case=2, delta=delta) if delta > 0 else Pattern(N=self.n)
