"""A bank's rows as they were at one moment, read piece by piece while training goes on."""

import threading
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ...algorithms import State

_PIECE = 16 * 2**20
"""bytes copied at a time: as long as training may have to wait for a piece, some milliseconds"""


class FrozenRows:
    """The first `count` rows of a block on the host. Nothing is copied up front.

    Whoever is about to overwrite a row that has not been read yet puts the old one aside first, so that memory
    grows with what changes meanwhile and not with the bank.
    """

    def __init__(self, rows: State, count: int) -> None:
        self._rows, self._count = rows, count
        self._lock = threading.Lock()
        self._read = dict.fromkeys(rows, 0)
        self._aside: dict[str, dict[int, Tensor]] = {name: {} for name in rows}

    def keep(self, slots: Tensor) -> None:
        """These are about to be overwritten."""
        with self._lock:
            for name, rows in self._rows.items():
                aside = self._aside[name]
                for slot in slots.tolist():
                    if self._read[name] <= slot < self._count and slot not in aside:
                        aside[slot] = rows[slot].clone()

    def read(self, name: str) -> Iterator[Tensor]:
        """All rows of that name in order. A piece is only valid until the next one."""
        rows, aside = self._rows[name], self._aside[name]
        step = max(1, _PIECE // max(1, rows[:1].nbytes))
        buffer = torch.empty_like(rows[: min(step, self._count)])
        for first in range(0, self._count, step):
            piece = buffer[: min(step, self._count - first)]
            with self._lock:
                piece.copy_(rows[first : first + len(piece)])
                for slot in [slot for slot in aside if slot < first + len(piece)]:
                    piece[slot - first] = aside.pop(slot)
                self._read[name] = first + len(piece)
            yield piece

    def release(self) -> None:
        """Nobody will read any more: from now on nothing is put aside."""
        with self._lock:
            self._count = 0
            self._aside = {name: {} for name in self._rows}


class FrozenBank:
    """A whole bank as it was: its clients, and the rows of each name, block after block."""

    def __init__(self, ids: list[int], like: State, blocks: list[FrozenRows], release: Callable[[], None]) -> None:
        self.ids, self.like = ids, like
        self._blocks = blocks
        self.release = release

    def read(self, name: str) -> Iterator[Tensor]:
        for block in self._blocks:
            yield from block.read(name)
