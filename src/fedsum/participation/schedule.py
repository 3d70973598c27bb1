"""The schedule interface: the active clients of a round, as a pure function of (seed, round)."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..base.checks import InputError

Ids = NDArray[np.int64]
"""a sorted array of distinct client ids, counted from 0"""


@dataclass(frozen=True)
class Pattern:
    """The properties of a schedule that the bounds in `fedsum.theory` use.

    >>> import fedsum
    >>> fedsum.Uniform(100, 5).describe()
    Pattern(N=100, case=1, S=5, delta=None)
    """

    N: int
    """the number of clients"""
    case: int | None = None
    """the participation case of the paper's section 2 whose delay lemma applies; None if none does"""
    S: int | None = None
    """active clients per round (Cases 1, 3 and 4)"""
    delta: float | None = None
    """smallest probability that a client is active in a round, given any past (Case 2)"""


class Schedule(Protocol):
    """The interface of a schedule: any object with `n`, `active` and `describe`. fedsum's own are frozen dataclasses.

    A schedule that also has `dispatch(seed, round)` is asynchronous: it returns the clients that are sent the model
    before round t, and begin to work on it. They are active in that or a later round. With `time(seed, round)`, the
    simulated seconds until round t is over, a run has the metric `time`. See `fedsum.Asynchronous`.

    >>> import numpy as np
    >>> import fedsum
    >>> class Alternate:  # clients 0 and 1 are active in even rounds, client 2 in odd rounds
    ...     n = 3
    ...
    ...     def active(self, seed, round):
    ...         return np.array([2] if round % 2 else [0, 1])
    ...
    ...     def describe(self, rounds=None):
    ...         return fedsum.Pattern(N=3)
    >>> fedsum.delays(Alternate(), rounds=10, seed=0).max
    1
    """

    @property
    def n(self) -> int:
        """N, the number of clients."""
        ...

    def active(self, seed: int, round: int) -> Ids:
        """S_t: the sorted ids, counted from 0, of the clients that are active in round t = `round`; may be empty."""
        ...

    def describe(self, rounds: int | None = None) -> Pattern:
        """The schedule's properties. `rounds` matters only if probabilities depend on the round."""
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
    invalid = ids[(ids < 0) | (ids >= n)]
    if len(invalid):
        raise InputError(field, int(invalid[0]), f"client id out of range; {accepted}")
    duplicates = ids[1:][ids[1:] == ids[:-1]]
    if len(duplicates):
        raise InputError(field, int(duplicates[0]), f"client id given twice; {accepted}")
    return ids
