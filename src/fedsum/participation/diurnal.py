"""A schedule with a daily cycle, such as phones that charge at night."""

import math
from dataclasses import dataclass

import numpy as np

from ..base.checks import InputError, integer, probability, real, set_fields
from ..base.keyed import Purpose, rng
from .independent import bernoulli
from .schedule import Ids, Pattern


@dataclass(frozen=True)
class Diurnal:
    """Clients are active independently, with a probability that goes up and down as a cosine of the round.

    Zone z has its peak in the rounds (z/zones) * period, one period later, and so on. A zone is a block of consecutive
    clients.

    Args:
      n: N, the number of clients.
      peak: the highest probability.
      trough: the lowest probability; may be 0.
      period: rounds per day; need not be a whole number.
      zones: time zones, spread evenly over the period.

    >>> [round(Diurnal(10, peak=0.5, trough=0.1, period=4).probability(t), 2) for t in range(5)]
    [0.5, 0.3, 0.1, 0.3, 0.5]
    """

    n: int
    peak: float
    trough: float
    period: float
    zones: int = 1

    def __post_init__(self) -> None:
        n = integer("n", self.n, low=1)
        peak, trough = probability("peak", self.peak), probability("trough", self.trough, zero=True)
        if trough > peak:
            raise InputError("trough", trough, f"at most the peak, {peak}")
        zones = integer("zones", self.zones, low=1, high=n, high_name="n")
        set_fields(self, n=n, peak=peak, trough=trough, period=real("period", self.period, low=1), zones=zones)

    def probability(self, round: int, zone: int = 0) -> float:
        """The probability that a client of the zone is active."""
        angle = 2 * math.pi * (round / self.period - zone / self.zones)
        return self.trough + (self.peak - self.trough) * (1 + math.cos(angle)) / 2

    def active(self, seed: int, round: int) -> Ids:
        draw, parts = rng(seed, Purpose.SCHEDULE, round), []
        for zone in range(self.zones):
            first, end = zone * self.n // self.zones, (zone + 1) * self.n // self.zones
            parts.append(first + bernoulli(draw, end - first, self.probability(round, zone)))
        return np.concatenate(parts)

    def describe(self, rounds: int | None = None) -> Pattern:
        return Pattern(N=self.n, case=2, delta=self.trough) if self.trough > 0 else Pattern(N=self.n)
