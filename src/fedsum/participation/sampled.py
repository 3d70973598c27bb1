"""A schedule in which the server chooses S of the available clients."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ..base.checks import InputError, integer, nearest, real, set_fields
from ..base.keyed import Purpose, rng
from .available_clients import Availability
from .replay import Replay
from .schedule import Ids, Pattern, Schedule

ORDERS = ("uniform", "oldest")
_CHOICE = 1
"""keeps the server's draws apart from those of the availability, which have the same seed and round; one more for each
`Sampled` that it chooses from"""


@dataclass(frozen=True)
class Sampled:
    """S of the clients that are available in a round, or all of them if fewer are available.

    MIFA with order "oldest" is FedLaAvg (Yan et al., "Distributed Non-Convex Optimization with Sublinear Speedup under
    Intermittent Client Availability", 2020).

    Args:
      availability: the available clients of each round: an `Availability`, a trace, or any other schedule.
      size: S, the number of clients that the server needs per round.
      order: "uniform": drawn uniformly without replacement. "oldest": the clients whose last active round is the
        longest ago, first those that were never active; ties are broken at random. A round costs O(available
        clients), and all rounds before it are computed first.
      oversample: over-selection: ceil(oversample * size) clients are asked. With a deadline, some of them are late.

    >>> Sampled(Availability.from_intervals([0, 1, 2], [0, 0, 5], [9, 9, 9], n=3, round_length=1), 2).active(0, 3)
    array([0, 1])
    """

    availability: Schedule
    size: int
    order: Literal["uniform", "oldest"] = "uniform"
    oversample: float = 1.0
    _replay: Replay[Ids] = field(default_factory=Replay, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not all(hasattr(self.availability, name) for name in ("n", "active", "describe")):
            raise InputError("availability", self.availability, "an Availability, a Trace or another schedule")
        if self.order not in ORDERS:
            raise InputError("order", self.order, nearest(str(self.order), ORDERS))
        size = integer("size", self.size, low=1, high=self.n, high_name="n")
        set_fields(self, size=size, oversample=real("oversample", self.oversample, low=1))

    @property
    def n(self) -> int:
        return self.availability.n

    @property
    def asked(self) -> int:
        """The most clients that are asked in a round."""
        return math.ceil(self.size * self.oversample - 1e-9)

    @property
    def _choice(self) -> int:
        return self.availability._choice + 1 if isinstance(self.availability, Sampled) else _CHOICE

    def active(self, seed: int, round: int) -> Ids:
        if self.order == "oldest":
            return self._replay.at(seed, integer("round", round, low=0), self._oldest).copy()
        draw = rng(seed, Purpose.SCHEDULE, round, self._choice)
        if isinstance(self.availability, Availability):  # O(size), however many are available
            index, recorded = self.availability.index, self.availability.recorded_round(round)
            return index.chosen(recorded, min(self.asked, index.count(recorded)), draw)
        available = self.availability.active(seed, round)
        return available[_some(draw, len(available), self.asked)]

    def _oldest(self, seed: int, sets: list[Ids]) -> Iterator[Ids]:
        last = np.full(self.n, -1, dtype=np.int64)
        while True:
            t = len(sets)
            available = self.availability.active(seed, t)
            chosen = available[_first(last[available], self.asked, rng(seed, Purpose.SCHEDULE, t, self._choice))]
            last[chosen] = t
            yield chosen

    def describe(self, rounds: int | None = None) -> Pattern:
        return Pattern(N=self.n)


def _some(draw: np.random.Generator, count: int, size: int) -> Ids:
    """Sorted places of `size` of `count` items, or of all."""
    return np.sort(draw.choice(count, size=min(size, count), replace=False, shuffle=False))


def _first(values: Ids, size: int, draw: np.random.Generator) -> Ids:
    """Sorted places of the `size` smallest values, ties drawn uniformly."""
    if len(values) <= size:
        return np.arange(len(values))
    limit = np.partition(values, size - 1)[size - 1]
    below, ties = np.flatnonzero(values < limit), np.flatnonzero(values == limit)
    return np.sort(np.concatenate([below, ties[_some(draw, len(ties), size - len(below))]]))
