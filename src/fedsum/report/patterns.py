"""Measurements of a schedule over T rounds: delays, and a raster small enough to draw for any N clients and any T.

tau_t: the longest any client has been away, in rounds, as of round t; tau_avg and tau_max: its mean and maximum over t.
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import theory
from ..participation import DelayMeter, Delays, Ids, Pattern, Schedule

_MOST_CELLS = 500, 1000


@dataclass(frozen=True)
class Measured:
    """A schedule's pattern, delays and participation raster."""

    pattern: Pattern
    rounds: int
    delays: Delays
    raster: NDArray[np.float64]
    """per cell, the share of its (client, round) pairs that were active; clients down, rounds across"""
    ages: NDArray[np.float64]
    """the share of gradients in the server's sum that are 0, 1, ... rounds old, over all rounds"""
    active: NDArray[np.int64]
    """|S_t|, the number of active clients, per round"""

    @property
    def tau_max_bound(self) -> float | None:
        """The delay lemma's bound on E[tau_max]; None if no lemma applies to the pattern."""
        properties = dataclasses.asdict(self.pattern)
        return theory.delay_bound(T=self.rounds, **properties) if self.pattern.case else None


def measure(
    schedule: Schedule, rounds: Iterable[int], seed: int, most_cells: tuple[int, int] = _MOST_CELLS
) -> Measured:
    """Measures a schedule over rounds: delays, active clients per round, and a raster of participation.

    Args:
      schedule: the schedule.
      rounds: the rounds from 0 on, as a range or a progress bar over a range.
      seed: the schedule's seed.
      most_cells: the most rows and columns of the raster.

    >>> import fedsum
    >>> measure(fedsum.Cyclic(10, 2), range(100), seed=0).active[:3]  # active clients per round
    array([2, 2, 2])
    """
    meter = DelayMeter(schedule.n)
    sets, lengths = [], []
    for t in rounds:
        ids = schedule.active(seed, t)
        sets.append(ids)
        lengths.append(t - meter.last[ids][meter.last[ids] >= 0])
        meter.update(ids)
    delays, T = meter.result(), len(sets)
    lengths.append(T - delays.last[delays.last >= 0])
    height, width = min(schedule.n, most_cells[0]), min(T, most_cells[1])
    active_pairs, pairs = np.zeros((height, width)), np.zeros((height, width))
    row_of = np.arange(schedule.n) * height // schedule.n
    clients_in_row = np.bincount(row_of, minlength=height)
    for t, ids in enumerate(sets):
        column = t * width // T
        active_pairs[:, column] += np.bincount(row_of[ids], minlength=height)
        pairs[:, column] += clients_in_row
    sizes = np.array([len(ids) for ids in sets])
    return Measured(schedule.describe(T), T, delays, active_pairs / pairs, _ages(np.concatenate(lengths), T), sizes)


def _ages(lengths: Ids, rounds: int) -> NDArray[np.float64]:
    """The shares of ages. A gradient that is replaced after n rounds has the ages 0 to n - 1, once each."""
    longer: NDArray[np.float64] = np.bincount(lengths, minlength=rounds + 1)[::-1].cumsum()[::-1][1:].astype(np.float64)
    return longer / max(1.0, float(longer.sum()))


def schedule_summary(
    measured: Measured, *, K: int, L: float, sigma: float, Delta_f: float
) -> dict[str, float | int | None]:
    """Counts, delays, the lemma's bound (None if no lemma applies) and theory's learning rates, by name.

    eta_l and eta_g are Theorem 1's. best_eta_l has the smallest bound of FedSUM's descent lemma at eta_g = 1, and
    largest_eta_l is the largest that the lemma permits.

    >>> import fedsum
    >>> measured = measure(fedsum.Cyclic(10, 2), range(100), seed=0)
    >>> schedule_summary(measured, K=5, L=1.0, sigma=1.0, Delta_f=1.0)["tau_max"]
    4
    """
    delays = measured.delays
    constants: dict[str, Any] = {"L": L, "sigma": sigma, "N": measured.pattern.N, "K": K, "T": measured.rounds}
    constants |= {"Delta_f": Delta_f, "tau_max": delays.max, "tau_avg": delays.avg}
    rates = theory.learning_rates(**constants)
    return {
        "clients": measured.pattern.N,
        "rounds": measured.rounds,
        "active_mean": float(measured.active.mean()),
        "active_min": int(measured.active.min()),
        "active_max": int(measured.active.max()),
        "empty_rounds": int((measured.active == 0).sum()),
        "never_seen": int((delays.counts == 0).sum()),
        "tau_max": delays.max,
        "tau_avg": delays.avg,
        "case": measured.pattern.case,
        "tau_max_bound": measured.tau_max_bound,
        "eta_l": rates.eta_l,
        "eta_g": rates.eta_g,
        "best_eta_l": theory.best_rates(eta_g=1.0, **constants).eta_l,
        "largest_eta_l": theory.largest_eta_l(1.0, L=L, K=K, tau_max=delays.max),
    }
