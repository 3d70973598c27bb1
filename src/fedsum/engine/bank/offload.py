"""A block outside the CUDA device, whose transfers overlap with the device's work."""

import torch
from torch import Tensor

from ...algorithms import State
from ..transfer import on_device
from . import blocks
from .blocks import Block

_SHARE = 0.25
"""share of the free device memory that the next cohort's rows may take while a cohort is trained"""


class OffloadedBlock(Block):
    """Rows in host memory or in a memory-mapped file, for a CUDA device.

    While a cohort is trained, the previous cohort's rows are written back and the next cohort's are fetched. Rows of
    clients in both the trained and the next cohort are not fetched: the trained rows are still on the device when they
    are read. All other rows do not change in the meantime.

    If the device has no room for a second cohort, the next cohort's rows are only read ahead into pinned host memory,
    and the trained rows are not kept on the device.
    """

    offloaded = True

    def __init__(self, rows: State, device: torch.device) -> None:
        super().__init__(rows)
        self.device = device
        self._side_stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._training: set[int] = set()
        """slots of the cohort that is being trained"""
        # Row by slot, and the rows: of the last cohort written and of the next one on the device, and of the next one
        # in pinned memory.
        self._written: tuple[dict[int, int], State] = {}, {}
        self._fetched: tuple[dict[int, int], State] = {}, {}
        self._staged: tuple[dict[int, int], State] = {}, {}
        self._pending: list[tuple[Tensor, State, torch.cuda.Event]] = []

    def read(self, slots: Tensor) -> State:
        wanted = slots.tolist()
        self._training = set(wanted)
        torch.cuda.current_stream().wait_stream(self._side_stream)
        fetched, self._fetched = self._fetched, ({}, {})
        staged, self._staged = self._staged, ({}, {})
        if not all(slot in self._written[0] or slot in fetched[0] for slot in wanted):
            self.settle()
            return self._on_device(self._read_ahead(slots, staged))
        cohort = {name: v.new_empty(len(wanted), *v.shape[1:], device=self.device) for name, v in self.rows.items()}
        for row_of, state in (fetched, self._written):  # written rows last, because they are newer
            places = [place for place, slot in enumerate(wanted) if slot in row_of]
            if places:
                target = on_device(torch.tensor(places), self.device)
                source = on_device(torch.tensor([row_of[wanted[place]] for place in places]), self.device)
                for name, value in cohort.items():
                    value.index_copy_(0, target, state[name].index_select(0, source))
        return cohort

    def write(self, slots: Tensor, state: State) -> None:
        staged = {
            name: torch.empty_like(value, device="cpu", pin_memory=True).copy_(value, non_blocking=True)
            for name, value in state.items()
        }
        self._pending.append((slots, staged, torch.cuda.current_stream().record_event()))
        if self._has_room(slots):
            self._written = {slot: row for row, slot in enumerate(slots.tolist())}, state
        self._training = set()

    def expect(self, slots: Tensor) -> None:
        self.settle()
        absent = torch.tensor([slot for slot in slots.tolist() if slot not in self._training], dtype=torch.int64)
        row_of = {slot: row for row, slot in enumerate(absent.tolist())}
        if self._has_room(slots):
            with torch.cuda.stream(self._side_stream):
                self._fetched = row_of, self._on_device(self._read_ahead(absent))
        else:
            self._staged = row_of, self._read_ahead(absent)

    def release(self) -> None:
        self._written = {}, {}

    def settle(self) -> None:
        for slots, staged, copied in self._pending:
            copied.synchronize()
            self._overwrite(slots, staged)
        self._pending.clear()

    def _has_room(self, slots: Tensor) -> bool:
        """Whether the device can hold these rows besides the cohort that is trained."""
        size = len(slots) * sum(rows[:1].nbytes for rows in self.rows.values())
        return size <= _SHARE * blocks.device_memory_free(self.device)

    def _read_ahead(self, slots: Tensor, staged: tuple[dict[int, int], State] = ({}, {})) -> State:
        """These rows in pinned memory; `staged` if it has exactly them."""
        row_of, ahead = staged
        if row_of and list(row_of) == slots.tolist():
            return ahead
        state = {}
        for name, rows in self.rows.items():
            pinned = torch.empty(len(slots), *rows.shape[1:], dtype=rows.dtype, pin_memory=True)
            state[name] = torch.index_select(rows, 0, slots, out=pinned)
        return state

    def _on_device(self, state: State) -> State:
        moved = {name: value.to(self.device, non_blocking=True) for name, value in state.items()}
        for value in moved.values():
            # Allocated on one stream and used on another: the memory must not be reused in between.
            value.record_stream(torch.cuda.default_stream(self.device))
        return moved
