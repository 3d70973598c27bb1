"""A block off the CUDA device, its transfers hidden behind the device's work."""

import torch
from torch import Tensor

from ...algorithms import State
from ..transfer import on_device
from .blocks import Block


class AwayBlock(Block):
    """Rows in host memory or a mapped file, for a CUDA device.

    A round's cohort is written back while the next one computes, and the cohort after that is fetched meanwhile:
    what was written last is still on the device, and who is not in the running round cannot change.
    """

    away = True

    def __init__(self, rows: State, device: torch.device) -> None:
        super().__init__(rows)
        self.device = device
        self._aside: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._running: set[int] = set()
        self._recent: tuple[dict[int, int], State] = {}, {}
        self._ahead: tuple[dict[int, int], State] = {}, {}
        self._unwritten: list[tuple[Tensor, State, torch.cuda.Event]] = []

    def read(self, slots: Tensor) -> State:
        wanted = slots.tolist()
        self._running = set(wanted)
        torch.cuda.current_stream().wait_stream(self._aside)
        if not all(slot in self._recent[0] or slot in self._ahead[0] for slot in wanted):
            self.settle()
            return self._fetched(slots)
        found = {name: v.new_empty(len(wanted), *v.shape[1:], device=self.device) for name, v in self.rows.items()}
        ahead, self._ahead = self._ahead, ({}, {})
        for at, state in (ahead, self._recent):  # the recent ones last: they are the newer
            places = [place for place, slot in enumerate(wanted) if slot in at]
            if places:
                here = on_device(torch.tensor(places), self.device)
                there = on_device(torch.tensor([at[wanted[place]] for place in places]), self.device)
                for name, value in found.items():
                    value.index_copy_(0, here, state[name].index_select(0, there))
        return found

    def write(self, slots: Tensor, state: State) -> None:
        staged = {
            name: torch.empty_like(value, device="cpu", pin_memory=True).copy_(value, non_blocking=True)
            for name, value in state.items()
        }
        self._unwritten.append((slots, staged, torch.cuda.current_stream().record_event()))
        self._recent = {slot: row for row, slot in enumerate(slots.tolist())}, state
        self._running = set()

    def expect(self, slots: Tensor) -> None:
        self.settle()
        coming = torch.tensor([slot for slot in slots.tolist() if slot not in self._running], dtype=torch.int64)
        with torch.cuda.stream(self._aside):
            self._ahead = {slot: row for row, slot in enumerate(coming.tolist())}, self._fetched(coming)

    def settle(self) -> None:
        for slots, staged, done in self._unwritten:
            done.synchronize()
            self._overwrite(slots, staged)
        self._unwritten.clear()

    def _fetched(self, slots: Tensor) -> State:
        found = {}
        for name, rows in self.rows.items():
            staged = torch.empty(len(slots), *rows.shape[1:], dtype=rows.dtype, pin_memory=True)
            found[name] = torch.index_select(rows, 0, slots, out=staged).to(self.device, non_blocking=True)
            # Made on one stream and used on another: the memory must not be given away in between.
            found[name].record_stream(torch.cuda.default_stream(self.device))
        return found
