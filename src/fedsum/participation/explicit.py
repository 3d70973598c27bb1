"""A schedule given as an explicit list of active sets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..base.checks import InputError, integer, set_fields
from .schedule import Ids, Pattern, as_ids


@dataclass(frozen=True, eq=False)
class Explicit:
    """An explicit list of active sets, one set per round.

    Args:
      n: N, the number of clients.
      sets: per round, the ids of its active clients, counted from 0; a set may be empty.
      repeat: start over after the last set. Otherwise a round after the last set is an error.

    >>> Explicit(3, [[0, 2], [], [1]]).active(seed=0, round=2)
    array([1])
    """

    n: int
    sets: Sequence[Iterable[int]]
    repeat: bool = False

    def __post_init__(self) -> None:
        n = integer("n", self.n, low=1)
        sets = [as_ids(f"sets[{t}]", ids, n) for t, ids in enumerate(self.sets)]
        if not sets:
            raise InputError("sets", [], "at least one round")
        set_fields(self, n=n, sets=sets)

    @property
    def rounds(self) -> int:
        """The number of sets."""
        return len(self.sets)

    def active(self, seed: int, round: int) -> Ids:
        if round < 0 or (round >= self.rounds and not self.repeat):
            raise InputError("round", round, f"from 0 to {self.rounds - 1}, or repeat=True to start over")
        ids: Ids = self.sets[round % self.rounds]  # type: ignore[assignment]  # converted at construction
        return ids.copy()

    def describe(self, rounds: int | None = None) -> Pattern:
        return Pattern(N=self.n)
