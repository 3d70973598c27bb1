"""Which clients are available in a round, from spans of rounds: an index whose queries cost O(answer), not O(N)."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .schedule import Ids

Time = TypeVar("Time", np.int64, np.float64)
"""rounds or seconds"""


class SpanIndex:
    """A segment tree over the rounds 0 to `rounds` - 1.

    Each span of rounds is cut into at most 2 log2(rounds) blocks of 1, 2, 4, ... rounds, as in a binary tree. A node of
    the tree lists the clients that are available in its whole block. A round lies in one block of each size, so its
    clients are the lists of log2(rounds) + 1 nodes.

    Args:
      clients: the client of each span. The spans of one client are disjoint.
      first: the first round of each span.
      end: the first round after each span; greater than `first`.
      rounds: all spans end by this round.
    """

    def __init__(self, clients: Ids, first: Ids, end: Ids, rounds: int) -> None:
        self.rounds = rounds
        self.spans = clients, first, end
        self._levels = max(1, rounds - 1).bit_length()
        width = 1 << self._levels
        low, high, order = first + width, end + width, int(clients.max(initial=0)) + 1
        keys = []
        for _ in range(self._levels + 1):
            for odd, nodes in ((low & 1, low), (high & 1, high - 1)):
                taken = (low < high) & (odd == 1)
                keys.append(nodes[taken] * order + clients[taken])
            low, high = (low + 1) >> 1, high >> 1
        # Sorted by node, then client.
        nodes, listed = np.divmod(np.sort(np.concatenate(keys)), order)
        self._clients = listed.astype(np.int32)
        self._nodes, starts = np.unique(nodes, return_index=True)
        self._starts = np.append(starts, len(listed))
        self._width = width

    def count(self, round: int) -> int:
        """The number of available clients."""
        return sum(len(part) for part in self._parts(round))

    def all(self, round: int) -> Ids:
        """Sorted ids of the available clients."""
        return np.sort(np.concatenate(self._parts(round))).astype(np.int64)

    def chosen(self, round: int, size: int, draw: np.random.Generator) -> Ids:
        """Sorted ids of `size` of the available clients, drawn uniformly at a cost of O(size)."""
        parts = self._parts(round)
        ends = np.cumsum([len(part) for part in parts])
        places = draw.choice(int(ends[-1]), size=size, replace=False, shuffle=False)
        owner = np.searchsorted(ends, places, side="right")
        ids = [parts[i][places[owner == i] - (ends[i] - len(parts[i]))] for i in range(len(parts))]
        return np.sort(np.concatenate(ids)).astype(np.int64)

    def _parts(self, round: int) -> list[NDArray[np.int32]]:
        path = (round + self._width) >> np.arange(self._levels + 1)
        found = np.searchsorted(self._nodes, path)
        known = np.minimum(found, len(self._nodes) - 1)
        return [
            self._clients[self._starts[i] : self._starts[i + 1]] if self._nodes[i] == node else self._clients[:0]
            for i, node in zip(known.tolist(), path.tolist(), strict=True)
        ]


def merged(clients: Ids, start: NDArray[Time], end: NDArray[Time]) -> tuple[Ids, NDArray[Time], NDArray[Time]]:
    """Intervals sorted by client and start, with the intervals of a client that overlap or touch made one.

    >>> merged(np.array([1, 0, 1]), np.array([5, 0, 2]), np.array([7, 1, 5]))
    (array([0, 1]), array([0, 2]), array([1, 7]))
    """
    if not len(clients):
        return clients, start, end
    order = np.lexsort((start, clients))
    clients, start, end = clients[order], start[order], end[order]
    # The largest end so far, per client. Clients and ranks of ends make one integer, so that a single running maximum
    # serves all clients and no time is rounded.
    ends, rank = np.unique(end, return_inverse=True)
    largest = ends[np.maximum.accumulate(clients * len(ends) + rank) - clients * len(ends)]
    opens = np.ones(len(clients), dtype=bool)
    opens[1:] = (clients[1:] != clients[:-1]) | (start[1:] > largest[:-1])
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(clients)) - 1
    return clients[first], start[first], largest[last]
