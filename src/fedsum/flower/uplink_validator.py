"""Validation of uplinks before they are merged."""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from statistics import median

from ..algorithms import Message

_REMEMBERED = 101
"""recent norms that are stored"""
_FEWEST = 5
"""recent norms needed before the limit applies"""


class RecentNorms:
    """Norms of recently merged uplinks: a client's first uplink is a whole gradient, later ones may be changes."""

    def __init__(self, first: Iterable[float] = (), later: Iterable[float] = ()) -> None:
        self.first = deque(first, maxlen=_REMEMBERED)
        self.later = deque(later, maxlen=_REMEMBERED)

    def lists(self) -> dict[str, list[float]]:
        """The arguments of an equal object."""
        return {"first": list(self.first), "later": list(self.later)}


class UplinkValidator:
    """Refuses uplinks with wrong names, shapes or types, with NaN or infinity, or with too large a norm.

    Args:
      expected: an uplink with the right names, shapes and types; its values do not matter.
      norm_limit: the largest norm, as a multiple of the median of recent norms; 0: no limit.
    """

    def __init__(self, expected: Message, norm_limit: float) -> None:
        self.expected, self.norm_limit = expected, norm_limit

    def refusal(self, uplink: Message, recent_norms: Sequence[float]) -> str | None:
        """Why the uplink is refused, in one line; None if it is valid."""
        if uplink.keys() != self.expected.keys():
            return f"holds {sorted(uplink)}, expected {sorted(self.expected)}"
        for name, expected in self.expected.items():
            value = uplink[name]
            if value.shape != expected.shape:
                return f"{name} has shape {list(value.shape)}, expected {list(expected.shape)}"
            if value.dtype != expected.dtype:
                return f"{name} is {value.dtype}, expected {expected.dtype}"
            if not bool(value.isfinite().all()):
                return f"{name} holds NaN or infinity"
        if self.norm_limit and len(recent_norms) >= _FEWEST:
            size, typical = norm(uplink), median(recent_norms)
            if size > self.norm_limit * typical:
                return f"norm {size:.3g} is more than {self.norm_limit:g} times the median, {typical:.3g}"
        return None


def norm(uplink: Message) -> float:
    """The Euclidean norm over all vectors of an uplink."""
    return math.sqrt(sum(float(value.double().square().sum()) for value in uplink.values()))
