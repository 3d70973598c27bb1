"""A schedule measured over a run: delays, and a raster small enough to draw for any N and T."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .. import theory
from ..participation import DelayMeter, Delays, Pattern, Schedule

_MOST_CELLS = 500, 1000


@dataclass(frozen=True)
class Measured:
    pattern: Pattern
    rounds: int
    delays: Delays
    raster: NDArray[np.float64]
    """share of the (client, round) pairs in each cell that took part; clients down, rounds across"""
    active: NDArray[np.int64]
    """|S_t| for each round"""

    @property
    def tau_max_bound(self) -> float | None:
        """The delay lemma's bound on E[tau_max], where there is one for the pattern."""
        known = dataclasses.asdict(self.pattern)
        return theory.delay_bound(T=self.rounds, **known) if self.pattern.case else None


def measure(
    schedule: Schedule, rounds: Iterable[int], seed: int, most_cells: tuple[int, int] = _MOST_CELLS
) -> Measured:
    """Goes through `rounds`, a range or a progress bar over one, from 0 on; the raster has no more than so many
    rows and columns."""
    meter = DelayMeter(schedule.n)
    sets = []
    for t in rounds:
        sets.append(schedule.active(seed, t))
        meter.update(sets[-1])
    delays, T = meter.result(), len(sets)
    height, width = min(schedule.n, most_cells[0]), min(T, most_cells[1])
    hits, cells = np.zeros((height, width)), np.zeros((height, width))
    row_of = np.arange(schedule.n) * height // schedule.n
    clients_in_row = np.bincount(row_of, minlength=height)
    for t, ids in enumerate(sets):
        column = t * width // T
        hits[:, column] += np.bincount(row_of[ids], minlength=height)
        cells[:, column] += clients_in_row
    return Measured(schedule.describe(T), T, delays, hits / cells, np.array([len(ids) for ids in sets]))


def summary(measured: Measured, *, K: int, L: float, sigma: float, Delta_f: float) -> dict[str, float | int | None]:
    """What the delays come to: counts, tau, the lemma's bound where there is one, Theorem 1's rates."""
    delays = measured.delays
    rates = theory.learning_rates(
        L=L,
        sigma=sigma,
        N=measured.pattern.N,
        K=K,
        T=measured.rounds,
        Delta_f=Delta_f,
        tau_max=delays.max,
        tau_avg=delays.avg,
    )
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
    }
