"""The states of all clients that were ever active."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from ...algorithms import State
from ...participation import Ids
from ..transfer import on_device
from .blocks import Block, make_block
from .snapshots import FrozenBank

_FIRST_ROWS, _LARGEST = 8, 2**30
"""rows of the first block, and bytes of the largest"""


class StateBank(Mapping[int, State]):
    """A state for each of N clients, stored for those that were ever active; the others have `initial`.

    Slots are allocated in blocks. Each new block doubles the number of slots, up to a size limit. Growing copies no
    state.

    >>> bank = StateBank({"h": torch.zeros(2)})
    >>> cohort = bank.gather(np.array([3, 900_000]))
    >>> bank.scatter(np.array([3, 900_000]), {"h": cohort["h"] + 1})
    >>> len(bank), bank[3]["h"]
    (2, tensor([1., 1.]))
    """

    def __init__(self, initial: State) -> None:
        self.initial = initial
        self._slot: dict[int, int] = {}
        self._blocks: list[Block] = []
        self._firsts: list[int] = []
        self._rows = 0
        self._offloaded = False
        self._initial_by_device = dict.fromkeys({v.device for v in initial.values()}, initial)

    def gather(self, clients: Ids) -> State:
        """The stacked state of a cohort on the device. New clients get a slot with the initial state."""
        cohort = self._read(clients)
        if self._offloaded:
            for block in self._blocks:
                block.release()
        return cohort

    def scatter(self, clients: Ids, state: State) -> None:
        """Stores the stacked state of a cohort."""
        for block, places, slots in self._spread(clients):
            rows = state
            if len(places) < len(clients):
                rows = {name: v.index_select(0, on_device(places, v.device)) for name, v in state.items()}
            block.write(slots, rows)

    def expect(self, clients: Ids) -> None:
        """Announces the clients of the next `gather`, so that their transfer overlaps with the device's work."""
        if self._offloaded:
            for block in self._blocks:
                block.settle()  # also blocks that no next client is in: pending writes hold host memory
            for block, _, slots in self._spread(clients):
                block.expect(slots)

    def mean(self, name: str, n: int) -> Tensor:
        """The mean over all n clients, stored or not."""
        total = (n - len(self)) * self.initial[name]
        for first, block in zip(self._firsts, self._blocks, strict=True):
            block.settle()
            total = total + block.rows[name][: len(self) - first].sum(0).to(total.device)
        return total / n

    def freeze(self) -> FrozenBank:
        """A snapshot that another thread can read while training continues; one at a time."""
        frozen = [block.freeze(len(self) - first) for first, block in zip(self._firsts, self._blocks, strict=True)]
        return FrozenBank(list(self._slot), self.initial, frozen, self._thaw)

    def _thaw(self) -> None:
        for block in self._blocks:
            block.thaw()

    def _read(self, clients: Ids) -> State:
        cohort = {name: v.new_empty(len(clients), *v.shape) for name, v in self.initial.items()}
        for block, places, slots in self._spread(clients):
            rows = block.read(slots)
            if len(places) == len(clients):
                return rows
            for name, value in cohort.items():
                value.index_copy_(0, on_device(places, value.device), rows[name])
        return cohort

    def _spread(self, clients: Ids) -> Iterator[tuple[Block, Tensor, Tensor]]:
        """Per block with clients of the cohort: the block, their places in the cohort and their slots in the block."""
        before = len(self)
        slots = np.array([self._slot.setdefault(client, len(self._slot)) for client in clients.tolist()], dtype=int)
        if not self.initial:
            return
        while self._rows < len(self):
            self._grow()
        self._fill_initial(before)
        block_of = np.searchsorted(self._firsts, slots, side="right") - 1
        for number in np.unique(block_of):
            places = np.flatnonzero(block_of == number)
            inside = slots[places] - self._firsts[number]
            yield self._blocks[number], torch.from_numpy(places), torch.from_numpy(inside)

    def _grow(self) -> None:
        size = sum(value.nbytes for value in self.initial.values())
        rows = max(1, min(max(_FIRST_ROWS, self._rows), _LARGEST // size))
        block = make_block(rows, self.initial)
        self._blocks.append(block)
        self._offloaded = self._offloaded or block.offloaded
        self._firsts.append(self._rows)
        self._rows += rows

    def _fill_initial(self, before: int) -> None:
        """Writes the initial state to the slots from `before` on. Memory that no client uses stays untouched."""
        for first, block in zip(reversed(self._firsts), reversed(self._blocks), strict=True):
            new = slice(max(0, before - first), len(self) - first)
            for name, rows in block.rows.items():
                rows[new] = self._initial_on(rows.device)[name]
            if first <= before:
                return

    def _initial_on(self, device: torch.device) -> State:
        if device not in self._initial_by_device:
            self._initial_by_device[device] = {name: value.to(device) for name, value in self.initial.items()}
        return self._initial_by_device[device]

    def __getitem__(self, client: int) -> State:
        slot = self._slot[client]
        if not self.initial:
            return {}
        number = bisect_right(self._firsts, slot) - 1
        self._blocks[number].settle()
        return {name: rows[slot - self._firsts[number]] for name, rows in self._blocks[number].rows.items()}

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._slot))

    def __len__(self) -> int:
        return len(self._slot)
