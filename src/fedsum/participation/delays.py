"""The paper's delay metrics, updated round by round.

S_t: the active clients of round t. a_{i,t}: the last round up to t in which client i was active, -1 if none; a_i: its
current value. tau_t = max_i (t - a_{i,t}): the longest any client has been away, in rounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..base.checks import integer
from ..base.checks import seed as check_seed
from .recorded import recorded_rounds
from .schedule import Ids, Schedule


@dataclass(frozen=True)
class Delays:
    """The delays of a schedule over the rounds 0 to T-1.

    >>> import fedsum
    >>> found = fedsum.delays(fedsum.Cyclic(4, 1), rounds=8, seed=0)
    >>> found.max, found.counts
    (3, array([2, 2, 2, 2]))
    """

    tau: NDArray[np.int64]
    """tau_t = max_i (t - a_{i,t}), per round"""
    max: int
    """tau_max, the maximum of tau_t"""
    avg: float
    """tau_avg, the mean of tau_t"""
    last: NDArray[np.int64]
    """a_i: last active round per client, -1 if never active"""
    counts: NDArray[np.int64]
    """active rounds per client"""
    gaps: NDArray[np.int64]
    """longest absence per client, in rounds; tau_max is their maximum"""


class DelayMeter:
    """Computes tau_t, the longest any client has been away, from the active clients of each round.

    tau_t = t - min_i a_i, where a_i, client i's last active round, never decreases. The amortised cost is O(|S_t|) per
    round, independent of N. The meter counts the clients by their last active round. A pointer to the oldest last
    active round moves up when no client has that round any more.

    >>> meter = DelayMeter(3)
    >>> [meter.update(np.array(ids, dtype=int)) for ids in ([0, 1], [2], [0], [])]
    [1, 1, 2, 3]
    """

    def __init__(self, n: int) -> None:
        self.last = np.full(n, -1, dtype=np.int64)
        self.counts = np.zeros(n, dtype=np.int64)
        self._closed_gaps = np.zeros(n, dtype=np.int64)
        self.tau: list[int] = []
        # _clients_by_last[j + 1] is the number of clients with a_i = j; _oldest is the smallest such j.
        self._clients_by_last = np.zeros(64, dtype=np.int64)
        self._clients_by_last[0] = n
        self._oldest = -1

    def update(self, active: Ids) -> int:
        """Adds the next round t, given its active clients, and returns tau_t."""
        t = len(self.tau)
        if t + 1 == len(self._clients_by_last):
            self._clients_by_last = np.concatenate([self._clients_by_last, np.zeros_like(self._clients_by_last)])
        previous = self.last[active]
        np.subtract.at(self._clients_by_last, previous + 1, 1)
        self._clients_by_last[t + 1] = len(active)
        while self._oldest < t and not self._clients_by_last[self._oldest + 1]:
            self._oldest += 1
        self.last[active] = t
        self.counts[active] += 1
        self._closed_gaps[active] = np.maximum(self._closed_gaps[active], t - 1 - previous)
        self.tau.append(t - self._oldest)
        return self.tau[-1]

    @property
    def seen(self) -> int:
        """The number of clients that were ever active."""
        return len(self.last) - int(self._clients_by_last[0])

    def seen_after(self, active: Ids) -> int:
        """The number of clients that were ever active, after one more round with these active clients."""
        return self.seen + int(np.count_nonzero(self.last[active] < 0))

    def state(self) -> dict[str, NDArray[np.int64]]:
        """The arrays from which `restored` rebuilds the meter."""
        tau = np.array(self.tau, dtype=np.int64)
        per_client = {"last": self.last, "counts": self.counts, "closed_gaps": self._closed_gaps}
        return {"tau": tau, **{name: values.copy() for name, values in per_client.items()}}

    @classmethod
    def restored(cls, state: Mapping[str, NDArray[np.int64]]) -> "DelayMeter":
        """The meter that returned `state`."""
        meter = cls(len(state["last"]))
        meter.last, meter.counts = state["last"].copy(), state["counts"].copy()
        meter._closed_gaps = state["closed_gaps"].copy()
        meter.tau = state["tau"].tolist()
        rounds = len(meter.tau)
        meter._clients_by_last = np.bincount(meter.last + 1, minlength=max(64, 2 * (rounds + 1)))
        meter._oldest = int(meter.last.min())
        return meter

    def result(self) -> Delays:
        """The delays over the rounds so far."""
        tau = np.array(self.tau, dtype=np.int64)
        return Delays(
            tau=tau,
            max=int(tau.max(initial=0)),
            avg=float(tau.mean()) if len(tau) else 0.0,
            last=self.last.copy(),
            counts=self.counts.copy(),
            gaps=np.maximum(self._closed_gaps, len(tau) - 1 - self.last),
        )


def delays(schedule: Schedule, rounds: int | None = None, seed: int = 0) -> Delays:
    """The delays of a schedule over `rounds` rounds; default: all rounds of a recorded one, such as a trace.

    >>> from fedsum import Cyclic
    >>> d = delays(Cyclic(10, 2), rounds=100)
    >>> d.max, d.avg
    (4, 3.94)
    """
    rounds = integer("rounds", recorded_rounds(schedule) if rounds is None else rounds, low=1)
    check_seed(seed)
    meter = DelayMeter(schedule.n)
    for t in range(rounds):
        meter.update(schedule.active(seed, t))
    return meter.result()
