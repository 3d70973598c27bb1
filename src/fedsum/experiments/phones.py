"""The experiment `phones`: recorded availability of 512 phones, and the accuracy of night phones and day phones.

The trace has one round per half hour. It starts at midnight (29 January 2020) and is repeated. The more of a phone's
available half hours are at night, the lower the labels of its data: people who charge at night write other digits than
people who charge by day. Night phones are those with more than half of their available half hours at night.
"""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..base.checks import InputError
from ..participation import Diurnal, Ids, Sampled, Schedule, Trace
from ..tasks import Task
from .label_order import ordered_by_label

_ROUNDS, _PER_DAY = 241, 48
_EVENING, _MORNING = 44, 16
"""night is from 22:00 to 8:00, in half hours since midnight"""


def mnist(clients: int = 512, alpha: float = 0.1, seed: int = 0) -> Task:
    """MNIST on the phones of the trace."""
    return _task("mnist", clients, alpha, seed, _trace(clients))


def cifar10(clients: int = 512, alpha: float = 0.1, seed: int = 0) -> Task:
    """CIFAR-10 on the phones of the trace."""
    return _task("cifar10", clients, alpha, seed, _trace(clients))


def digits(clients: int = 30, alpha: float = 0.1, seed: int = 0) -> Task:
    """Handwritten digits, for small runs, on the phones of `generated`."""
    return _task("digits", clients, alpha, seed, _generated(clients))


def recorded(n: int, size: int = 20) -> Sampled:
    """`size` of the phones that are available in the trace; $FEDSUM_DATA/traces/phones.csv must exist.

    Args:
      n: N; with fewer than 512 clients, every (512 // N)-th phone.
      size: S.
    """
    return Sampled(_trace(n), size)


def generated(n: int, size: int = 3) -> Sampled:
    """The same without the file: half of the phones are mostly available at night, the others by day."""
    return Sampled(_generated(n), size)


def _trace(n: int) -> Schedule:
    folder = os.environ.get("FEDSUM_DATA")
    path = Path(folder or "").expanduser() / "traces" / "phones.csv"
    if not folder or not path.exists():
        raise InputError("FEDSUM_DATA", folder, "a folder that contains traces/phones.csv")
    trace = Trace.read(path, repeat=True)
    if n > trace.n:
        raise InputError("clients", n, f"at most {trace.n}, the phones of the trace")
    return trace if n == trace.n else _Some(trace, n)


def _generated(n: int) -> Diurnal:
    return Diurnal(n, peak=0.4, trough=0.02, period=_PER_DAY, zones=2)


class _Some:
    """Every so many-th client of a schedule."""

    def __init__(self, schedule: Schedule, n: int) -> None:
        self._schedule, self.n = schedule, n
        self.describe = schedule.describe

    def active(self, seed: int, round: int) -> Ids:
        number, rest = np.divmod(self._schedule.active(seed, round), self._schedule.n // self.n)
        ids: Ids = number[(rest == 0) & (number < self.n)]
        return ids


def _task(name: str, clients: int, alpha: float, seed: int, availability: Schedule) -> Task:
    share = night_share(availability)
    night = share > 0.5
    groups = {"night": np.flatnonzero(night), "day": np.flatnonzero(~night)}
    return ordered_by_label(name, clients, alpha, seed, order=np.argsort(-share, kind="stable"), groups=groups)


def night_share(availability: Schedule) -> NDArray[np.float64]:
    """The share of each phone's available half hours that is at night; 0 for a phone that is never available.

    >>> night_share(Diurnal(4, peak=0.9, trough=0.1, period=48, zones=2)).round(1)
    array([0.6, 0.6, 0.3, 0.2])
    """
    at_night, in_all = np.zeros((2, availability.n))
    for t in range(_ROUNDS):
        active = availability.active(0, t)
        in_all[active] += 1
        if not _MORNING <= t % _PER_DAY < _EVENING:
            at_night[active] += 1
    return at_night / np.maximum(in_all, 1)
