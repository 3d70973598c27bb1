"""What comes from a client is checked before it is added to anything."""

import math
from collections import deque
from statistics import median

from ..algorithms import Message
from ..base.checks import real

_WINDOW = 101
_FEWEST = 5
"""norms to remember, and to have seen before one is called too large"""


class UplinkValidator:
    """Refuses uplinks of the wrong form, with NaN or infinity, or far larger than others were.

    Args:
      expected: an uplink as it should be; its values do not matter.
      limit: the largest norm, as a multiple of the median of those let in; 0 for none.
    """

    def __init__(self, expected: Message, limit: float) -> None:
        self.expected = expected
        self.limit = real("norm_limit", limit, low=0)
        # A client's first uplink is a whole gradient, the later ones may be changes: two measures.
        self._norms = {True: deque[float](maxlen=_WINDOW), False: deque[float](maxlen=_WINDOW)}

    def refusal(self, uplink: Message, *, first: bool) -> str | None:
        """Why not, in one line; None if it may come in."""
        if uplink.keys() != self.expected.keys():
            return f"holds {sorted(uplink)}, expected {sorted(self.expected)}"
        for name, wanted in self.expected.items():
            value = uplink[name]
            if value.shape != wanted.shape:
                return f"{name} has shape {list(value.shape)}, expected {list(wanted.shape)}"
            if value.dtype != wanted.dtype:
                return f"{name} is {value.dtype}, expected {wanted.dtype}"
            if not bool(value.isfinite().all()):
                return f"{name} holds NaN or infinity"
        norm, seen = _norm(uplink), self._norms[first]
        if self.limit and len(seen) >= _FEWEST and norm > self.limit * median(seen):
            return f"norm {norm:.3g} is over {self.limit:g} times the median, {median(seen):.3g}"
        return None

    def admitted(self, uplink: Message, *, first: bool) -> None:
        """It was merged: from now on it is part of what is usual."""
        self._norms[first].append(_norm(uplink))

    def memory(self) -> dict[str, list[float]]:
        return {"first": list(self._norms[True]), "later": list(self._norms[False])}

    def recall(self, memory: dict[str, list[float]]) -> None:
        self._norms[True].extend(memory["first"])
        self._norms[False].extend(memory["later"])


def _norm(uplink: Message) -> float:
    return math.sqrt(sum(float(value.double().square().sum()) for value in uplink.values()))
