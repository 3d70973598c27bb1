"""What one client's log says about its availability, and how it fills a longer time."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ClientRecord:
    """The availability of one client from `start` to `end`. Before and after, it is unknown.

    Args:
      client: the client's name.
      start: where the record begins, in seconds.
      end: where the record ends; greater than `start`.
      available: intervals (start, end) within the record.
    """

    client: str
    start: float
    end: float
    available: Sequence[tuple[float, float]]

    def between(self, begin: float, end: float, *, repeat: bool) -> Iterator[tuple[float, float]]:
        """The intervals from `begin` to `end`; with `repeat`, the record repeats before its start and after its end.

        >>> record = ClientRecord("a", 10, 20, [(12, 15)])
        >>> list(record.between(0, 33, repeat=True)), list(record.between(0, 33, repeat=False))
        ([(2, 5), (12, 15), (22, 25), (32, 33)], [(12, 15)])
        """
        length = self.end - self.start
        first = math.floor((begin - self.start) / length) if repeat else 0
        copies = math.ceil((end - self.start) / length) if repeat else 1
        for copy in range(first, copies):
            for left, right in self.available:
                left, right = max(begin, left + copy * length), min(end, right + copy * length)
                if left < right:
                    yield left, right
