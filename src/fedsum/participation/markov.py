"""A schedule in which clients stay active for a while and absent for a while."""

from dataclasses import dataclass, field

import numpy as np

from ..base.checks import integer, probability, set_fields
from ..base.keyed import Purpose, rng
from .independent import bernoulli
from .schedule import Ids, Pattern

_SNAPSHOT_EVERY = 64


@dataclass(frozen=True)
class Markov:
    """One two-state Markov chain per client, started in its stationary distribution.

    The chains are simulated from round 0 on, at a cost of O(active clients) per round. The active clients of every
    64th round are stored, so that an earlier round costs at most 64 steps when it is asked for again.

    Args:
      n: N, the number of clients.
      on: probability that an active client stays active, below 1.
      off: probability that an absent client stays absent, below 1.

    >>> Markov(100, on=0.9, off=0.98).describe().delta  # the probability that an absent client joins
    0.02...
    """

    n: int
    on: float
    off: float
    _walk: dict[tuple[int, int], Ids] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        set_fields(
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
        start = round
        while (seed, start) not in self._walk:
            start -= 1
        ids = self._walk[seed, start]
        for t in range(start + 1, round + 1):
            ids = self._walk[seed, t] = self._step(ids, seed, t)
            if (t - 1) % _SNAPSHOT_EVERY:
                self._walk.pop((seed, t - 1), None)
        return ids.copy()

    def _step(self, ids: Ids, seed: int, t: int) -> Ids:
        draw = rng(seed, Purpose.SCHEDULE, t)
        staying = ids[draw.random(len(ids)) < self.on]
        # Joining clients are drawn as ranks among the absent clients: rank r is the id r + (active ids before it).
        ranks = bernoulli(draw, self.n - len(ids), 1 - self.off) if len(ids) < self.n else ids[:0]
        joining = ranks + np.searchsorted(ids - np.arange(len(ids)), ranks, side="right")
        return np.sort(np.concatenate([staying, joining]))

    def describe(self, rounds: int | None = None) -> Pattern:
        # Lemma 2 of the paper's appendix requires only that, given the past, a client is active with probability at
        # least delta in every round. That is the smaller of the two probabilities here.
        delta = min(self.on, 1 - self.off)
        return Pattern(N=self.n, case=2, delta=delta) if delta > 0 else Pattern(N=self.n)
