"""A block outside the CUDA device, whose transfers overlap with the device's work."""

import torch
from torch import Tensor

from ...algorithms import State
from ..transfer import on_device
from .blocks import Block


class OffloadedBlock(Block):
    """Rows in host memory or in a memory-mapped file, for a CUDA device.

    While a cohort is trained, the previous cohort's rows are written back and the next cohort's are fetched. Rows of
    clients in both the trained and the next cohort are not fetched: the trained rows are still on the device when they
    are read. All other rows do not change in the meantime.
    """

    offloaded = True

    def __init__(self, rows: State, device: torch.device) -> None:
        super().__init__(rows)
        self.device = device
        self._side_stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._training: set[int] = set()
        """slots of the cohort that is being trained"""
        # Row by slot, and the rows, of the last cohort written and of the next one.
        self._written: tuple[dict[int, int], State] = {}, {}
        self._fetched: tuple[dict[int, int], State] = {}, {}
        self._pending: list[tuple[Tensor, State, torch.cuda.Event]] = []

    def read(self, slots: Tensor) -> State:
        wanted = slots.tolist()
        self._training = set(wanted)
        torch.cuda.current_stream().wait_stream(self._side_stream)
        if not all(slot in self._written[0] or slot in self._fetched[0] for slot in wanted):
            self.settle()
            return self._fetch(slots)
        cohort = {name: v.new_empty(len(wanted), *v.shape[1:], device=self.device) for name, v in self.rows.items()}
        fetched, self._fetched = self._fetched, ({}, {})
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
        self._written = {slot: row for row, slot in enumerate(slots.tolist())}, state
        self._training = set()

    def expect(self, slots: Tensor) -> None:
        self.settle()
        absent = torch.tensor([slot for slot in slots.tolist() if slot not in self._training], dtype=torch.int64)
        with torch.cuda.stream(self._side_stream):
            self._fetched = {slot: row for row, slot in enumerate(absent.tolist())}, self._fetch(absent)

    def settle(self) -> None:
        for slots, staged, copied in self._pending:
            copied.synchronize()
            self._overwrite(slots, staged)
        self._pending.clear()

    def _fetch(self, slots: Tensor) -> State:
        state = {}
        for name, rows in self.rows.items():
            staged = torch.empty(len(slots), *rows.shape[1:], dtype=rows.dtype, pin_memory=True)
            state[name] = torch.index_select(rows, 0, slots, out=staged).to(self.device, non_blocking=True)
            # Allocated on one stream and used on another: the memory must not be reused in between.
            state[name].record_stream(torch.cuda.default_stream(self.device))
        return state
