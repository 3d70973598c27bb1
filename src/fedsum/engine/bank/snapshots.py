"""Snapshots of a bank's rows, read piece by piece while training continues."""

import threading
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ...algorithms import State

_PIECE = 16 * 2**20
"""bytes copied at a time: training may have to wait for one piece, some milliseconds"""


class FrozenRows:
    """A snapshot of the first `count` rows of a block on the host, without a copy in advance.

    A row that has not been read yet is copied before it is overwritten. Memory grows with the rows that change while
    the snapshot is read, not with the bank.
    """

    def __init__(self, rows: State, count: int) -> None:
        self._rows, self._count = rows, count
        self._lock = threading.Lock()
        self._read = dict.fromkeys(rows, 0)
        self._saved: dict[str, dict[int, Tensor]] = {name: {} for name in rows}

    def save_rows(self, slots: Tensor) -> None:
        """Copies the rows in these slots, which are about to be overwritten, unless they were read already."""
        with self._lock:
            for name, rows in self._rows.items():
                saved = self._saved[name]
                for slot in slots.tolist():
                    if self._read[name] <= slot < self._count and slot not in saved:
                        saved[slot] = rows[slot].clone()

    def read(self, name: str) -> Iterator[Tensor]:
        """All rows of that name in order, in pieces. A piece is only valid until the next one."""
        rows, saved = self._rows[name], self._saved[name]
        step = max(1, _PIECE // max(1, rows[:1].nbytes))
        buffer = torch.empty_like(rows[: min(step, self._count)])
        for first in range(0, self._count, step):
            piece = buffer[: min(step, self._count - first)]
            with self._lock:
                piece.copy_(rows[first : first + len(piece)])
                for slot in [slot for slot in saved if slot < first + len(piece)]:
                    piece[slot - first] = saved.pop(slot)
                self._read[name] = first + len(piece)
            yield piece

    def release(self) -> None:
        """Ends the snapshot: no more rows are copied."""
        with self._lock:
            self._count = 0
            self._saved = {name: {} for name in self._rows}


class FrozenBank:
    """A snapshot of a whole bank: its clients, and the rows of each name, block after block."""

    def __init__(self, ids: list[int], like: State, blocks: list[FrozenRows], release: Callable[[], None]) -> None:
        self.ids, self.like = ids, like
        self._blocks = blocks
        self.release = release

    def read(self, name: str) -> Iterator[Tensor]:
        """All rows of that name in the order of `ids`, in pieces. A piece is only valid until the next one."""
        for block in self._blocks:
            yield from block.read(name)
