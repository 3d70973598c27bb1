"""The paper's delay metrics, measured as rounds pass."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..base.checks import integer
from ..base.checks import seed as check_seed
from .schedule import Ids, Schedule


@dataclass(frozen=True)
class Delays:
    """Delays over the rounds 0..T-1."""

    tau: NDArray[np.int64]
    """tau_t = max_i (t - a_{i,t}) for each round"""
    max: int
    """tau_max"""
    avg: float
    """tau_avg"""
    last: NDArray[np.int64]
    """a_i: last active round of each client, -1 if never"""
    counts: NDArray[np.int64]
    """rounds in which each client took part"""
    gaps: NDArray[np.int64]
    """longest absence of each client, in rounds; tau_max is the longest of them"""


class DelayMeter:
    """Keeps a_i and tau_t at an amortised cost of O(|S_t|) a round, whatever N is.

    tau_t = t - min_i a_i, and a_i only ever grows. So it is enough to know how many clients have each last
    round, and to move a pointer up past the rounds that nobody has any more.

    >>> meter = DelayMeter(3)
    >>> [meter.update(np.array(ids, dtype=int)) for ids in ([0, 1], [2], [0], [])]
    [1, 1, 2, 3]
    """

    def __init__(self, n: int) -> None:
        self.last = np.full(n, -1, dtype=np.int64)
        self.counts = np.zeros(n, dtype=np.int64)
        self._closed_gaps = np.zeros(n, dtype=np.int64)
        self.tau: list[int] = []
        # _waiting[j + 1]: how many clients have a_i = j; the oldest such j is _oldest.
        self._waiting = np.zeros(64, dtype=np.int64)
        self._waiting[0] = n
        self._oldest = -1

    def update(self, active: Ids) -> int:
        """Applies the next round's set and returns its tau_t."""
        t = len(self.tau)
        if t + 1 == len(self._waiting):
            self._waiting = np.concatenate([self._waiting, np.zeros_like(self._waiting)])
        before = self.last[active]
        np.subtract.at(self._waiting, before + 1, 1)
        self._waiting[t + 1] = len(active)
        while self._oldest < t and not self._waiting[self._oldest + 1]:
            self._oldest += 1
        self.last[active] = t
        self.counts[active] += 1
        self._closed_gaps[active] = np.maximum(self._closed_gaps[active], t - 1 - before)
        self.tau.append(t - self._oldest)
        return self.tau[-1]

    def state(self) -> dict[str, NDArray[np.int64]]:
        """What `restored` needs; all else follows from it."""
        tau = np.array(self.tau, dtype=np.int64)
        kept = {"last": self.last, "counts": self.counts, "closed_gaps": self._closed_gaps}
        return {"tau": tau, **{name: values.copy() for name, values in kept.items()}}

    @classmethod
    def restored(cls, state: Mapping[str, NDArray[np.int64]]) -> "DelayMeter":
        """The meter whose state this was."""
        meter = cls(len(state["last"]))
        meter.last, meter.counts = state["last"].copy(), state["counts"].copy()
        meter._closed_gaps = state["closed_gaps"].copy()
        meter.tau = state["tau"].tolist()
        rounds = len(meter.tau)
        meter._waiting = np.bincount(meter.last + 1, minlength=max(64, 2 * (rounds + 1)))
        meter._oldest = int(meter.last.min())
        return meter

    def result(self) -> Delays:
        tau = np.array(self.tau, dtype=np.int64)
        return Delays(
            tau=tau,
            max=int(tau.max(initial=0)),
            avg=float(tau.mean()) if len(tau) else 0.0,
            last=self.last.copy(),
            counts=self.counts.copy(),
            gaps=np.maximum(self._closed_gaps, len(tau) - 1 - self.last),
        )


def delays(schedule: Schedule, rounds: int, seed: int = 0) -> Delays:
    """Delays of a schedule over `rounds` rounds.

    >>> from fedsum import Cyclic
    >>> d = delays(Cyclic(10, 2), rounds=100)
    >>> d.max, d.avg
    (4, 3.94)
    """
    integer("rounds", rounds, low=1)
    check_seed(seed)
    meter = DelayMeter(schedule.n)
    for t in range(rounds):
        meter.update(schedule.active(seed, t))
    return meter.result()
