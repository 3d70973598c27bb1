"""Blocks of client states, each made where there is room."""

import os
import tempfile
from math import prod

import torch
from torch import Tensor

from ...algorithms import State
from ..transfer import on_device
from .snapshots import FrozenRows

_SHARE = 0.5
"""of the free memory of a place that one more block may take"""


class Block:
    """Rows that lie where they are used: on the device, or for a CPU in its memory or in a mapped file."""

    away = False
    """whether reading is worth preparing"""

    def __init__(self, rows: State) -> None:
        self.rows = rows
        self._frozen: FrozenRows | None = None

    def read(self, slots: Tensor) -> State:
        """The states in these slots, stacked on the device."""
        return {name: rows.index_select(0, on_device(slots, rows.device)) for name, rows in self.rows.items()}

    def write(self, slots: Tensor, state: State) -> None:
        self._overwrite(slots, {name: value.to(self.rows[name].device) for name, value in state.items()})

    def expect(self, slots: Tensor) -> None:
        """These will be read next. What is at hand anyway needs no preparation."""

    def settle(self) -> None:
        """Makes `rows` what was written last."""

    def freeze(self, count: int) -> FrozenRows:
        """The first `count` rows (or all) as they are now, to be read while others are written; one at a time."""
        self.settle()
        count = min(count, *(len(rows) for rows in self.rows.values()))
        if any(rows.is_cuda for rows in self.rows.values()):
            # Copied at once: another thread must not touch the device while graphs are captured.
            return FrozenRows({name: rows[:count].cpu() for name, rows in self.rows.items()}, count)
        self._frozen = FrozenRows(self.rows, count)
        return self._frozen

    def thaw(self) -> None:
        if self._frozen:
            self._frozen.release()
            self._frozen = None

    def _overwrite(self, slots: Tensor, state: State) -> None:
        frozen = self._frozen  # another thread may end it meanwhile
        if frozen:
            frozen.keep(slots)
        for name, rows in self.rows.items():
            rows.index_copy_(0, on_device(slots, rows.device), state[name])


def make_block(rows: int, like: State) -> Block:
    """An empty block for `rows` states, on the device while there is room, else in host memory, else in a file."""
    device = next(iter(like.values())).device
    cuda = device.type == "cuda"
    size = rows * sum(value.nbytes for value in like.values())
    shapes = {name: (rows, *value.shape) for name, value in like.items()}
    if cuda and size <= _SHARE * torch.cuda.mem_get_info(device)[0]:
        return Block({name: value.new_empty(shapes[name]) for name, value in like.items()})
    if size <= _SHARE * host_memory_free():
        # Not pinned itself, which would take seconds for gigabytes: what travels goes through pinned buffers.
        state = {name: torch.empty(shapes[name], dtype=value.dtype) for name, value in like.items()}
    else:
        state = {name: _in_file(shapes[name], value.dtype) for name, value in like.items()}
    if cuda:
        from .offload import AwayBlock

        return AwayBlock(state, device)
    return Block(state)


def host_memory_free() -> float:
    """Bytes that could be taken without swapping; where nobody says, half of all there is."""
    if not os.path.exists("/proc/meminfo"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2
    with open("/proc/meminfo") as file:
        found = dict(line.split(":") for line in file)
    return float(found["MemAvailable"].split()[0]) * 1024


def reserve(descriptor: int, size: int) -> None:
    """Makes room in a file at once: a full disk is an error now, and not a signal when somebody writes to it."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)


def _in_file(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor in a mapped file that has no name any more, and vanishes with the process."""
    with tempfile.NamedTemporaryFile(prefix="fedsum-bank-") as file:
        reserve(file.fileno(), prod(shape) * dtype.itemsize)
        return torch.from_file(file.name, shared=True, size=prod(shape), dtype=dtype).view(shape)
