"""A schedule in which groups of clients take turns, such as time zones."""

from dataclasses import dataclass

import numpy as np

from ..base.checks import integer, set_fields
from ..base.keyed import Purpose, rng
from .schedule import Ids, Pattern


@dataclass(frozen=True)
class Periodic:
    """Groups of consecutive clients take turns of `dwell` rounds; in a round, `size` clients of the group are active.

    The pattern for which Amplified FedAvg and Amplified SCAFFOLD were made: their period P is groups * dwell. A group
    is at least n // groups clients.

    Args:
      n: N, the number of clients.
      groups: the number of groups, which take turns in a fixed order.
      dwell: rounds per turn.
      size: active clients per round, drawn uniformly without replacement from the group.

    >>> [Periodic(6, groups=2, dwell=2, size=2).active(seed=0, round=t).tolist() for t in range(5)]
    [[0, 2], [1, 2], [4, 5], [3, 5], [1, 2]]
    """

    n: int
    groups: int
    dwell: int
    size: int

    def __post_init__(self) -> None:
        n = integer("n", self.n, low=1)
        groups = integer("groups", self.groups, low=1, high=n, high_name="n")
        set_fields(
            self,
            n=n,
            groups=groups,
            dwell=integer("dwell", self.dwell, low=1),
            size=integer("size", self.size, low=1, high=n // groups, high_name="n // groups"),
        )

    @property
    def period(self) -> int:
        """Rounds until the first group has its next turn."""
        return self.groups * self.dwell

    def active(self, seed: int, round: int) -> Ids:
        group = round // self.dwell % self.groups
        first, end = group * self.n // self.groups, (group + 1) * self.n // self.groups
        draw = rng(seed, Purpose.SCHEDULE, round)
        return first + np.sort(draw.choice(end - first, size=self.size, replace=False, shuffle=False))

    def describe(self, rounds: int | None = None) -> Pattern:
        return Pattern(N=self.n)
