"""What a schedule is: who is active in a round, as a pure function of (seed, round)."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..base.checks import InputError

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Pattern:
    """What theory needs to know of a schedule."""

    N: int
    """clients"""
    case: int | None = None
    """the participation case of the paper's section 2 whose delay lemma applies, if one does"""
    S: int | None = None
    """active clients a round (Cases 1, 3 and 4)"""
    delta: float | None = None
    """least probability that a client takes part in a round, whatever happened before (Case 2)"""


class Schedule(Protocol):
    """Anything with these three is a schedule; the classes of this package are frozen dataclasses."""

    @property
    def n(self) -> int:
        """N, the number of clients."""
        ...

    def active(self, seed: int, round: int) -> Ids:
        """S_t: the sorted ids, from 0, of the clients active in round `round`; may be empty."""
        ...

    def describe(self, rounds: int | None = None) -> Pattern:
        """What theory needs; `rounds` is the horizon T, for probabilities that depend on the round."""
        ...


def as_ids(field: str, values: object, n: int) -> Ids:
    """`values` as a sorted array of distinct ids below n, or an InputError that names `field`."""
    accepted = f"distinct client ids from 0 to {n - 1}"
    try:
        ids = np.asarray(list(values) if isinstance(values, set | frozenset) else values)
        if ids.size == 0:
            return np.empty(0, dtype=np.int64)
    except ValueError:  # a ragged list
        raise InputError(field, values, accepted) from None
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise InputError(field, values, accepted)
    ids = np.sort(ids).astype(np.int64)
    wrong = ids[(ids < 0) | (ids >= n)]
    if len(wrong):
        raise InputError(field, int(wrong[0]), f"client id out of range; {accepted}")
    twice = ids[1:][ids[1:] == ids[:-1]]
    if len(twice):
        raise InputError(field, int(twice[0]), f"client id given twice; {accepted}")
    return ids
