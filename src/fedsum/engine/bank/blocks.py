"""Blocks of client states, each on the device, in host memory or in a memory-mapped file, where memory is free."""

import os
import tempfile
from math import prod

import torch
from torch import Tensor

from ...algorithms import State
from ..transfer import on_device
from .snapshots import FrozenRows

_SHARE = 0.5
"""share of the free memory of a device or host that a new block may take"""
_TRAINING = 16
"""device memory that stays free for training, in sizes of a client's state: for a cohort of two large models"""


class Block:
    """Rows in the memory where they are used: on the device, or for a CPU in its memory or in a memory-mapped file."""

    offloaded = False
    """whether rows must be copied to the device, so that `expect` saves time"""

    def __init__(self, rows: State) -> None:
        self.rows = rows
        self._frozen: FrozenRows | None = None

    def read(self, slots: Tensor) -> State:
        """The states in these slots, stacked on the device."""
        return {name: rows.index_select(0, on_device(slots, rows.device)) for name, rows in self.rows.items()}

    def write(self, slots: Tensor, state: State) -> None:
        self._overwrite(slots, {name: value.to(self.rows[name].device) for name, value in state.items()})

    def expect(self, slots: Tensor) -> None:
        """Announces the slots that will be read next. Only an offloaded block prepares them."""

    def release(self) -> None:
        """Frees device memory of the cohort before: called after a cohort was read, in every block."""

    def settle(self) -> None:
        """Completes all writes, so that `rows` is up to date."""

    def freeze(self, count: int) -> FrozenRows:
        """A snapshot of the first `count` rows (or all), which can be read during later writes; one at a time."""
        self.settle()
        count = min(count, *(len(rows) for rows in self.rows.values()))
        if any(rows.is_cuda for rows in self.rows.values()):
            # Copied at once: another thread must not use the device while graphs are captured.
            return FrozenRows({name: rows[:count].cpu() for name, rows in self.rows.items()}, count)
        self._frozen = FrozenRows(self.rows, count)
        return self._frozen

    def thaw(self) -> None:
        """Ends the snapshot."""
        if self._frozen:
            self._frozen.release()
            self._frozen = None

    def _overwrite(self, slots: Tensor, state: State) -> None:
        frozen = self._frozen  # another thread may set it to None
        if frozen:
            frozen.save_rows(slots)
        for name, rows in self.rows.items():
            rows.index_copy_(0, on_device(slots, rows.device), state[name])


def make_block(rows: int, like: State) -> Block:
    """An empty block for `rows` states: on the device if it has room, else in host memory, else in a file."""
    device = next(iter(like.values())).device
    cuda = device.type == "cuda"
    size = rows * sum(value.nbytes for value in like.values())
    shapes = {name: (rows, *value.shape) for name, value in like.items()}
    if cuda and size <= _SHARE * (device_memory_free(device) - _TRAINING * size / rows):
        return Block({name: value.new_empty(shapes[name]) for name, value in like.items()})
    if size <= _SHARE * host_memory_free():
        # Not pinned, which would take seconds for gigabytes: rows are copied through pinned buffers.
        state = {name: torch.empty(shapes[name], dtype=value.dtype) for name, value in like.items()}
    else:
        state = {name: _in_file(shapes[name], value.dtype) for name, value in like.items()}
    if cuda:
        from .offload import OffloadedBlock

        return OffloadedBlock(state, device)
    return Block(state)


def device_memory_free(device: torch.device) -> float:
    """Bytes that this process can still take on the device, within torch.cuda.set_per_process_memory_fraction."""
    free, total = torch.cuda.mem_get_info(device)
    allowed = torch.cuda.get_per_process_memory_fraction(device) * total
    return min(free, allowed - torch.cuda.memory_reserved(device))


def host_memory_free() -> float:
    """Bytes of host memory that can be used without swapping."""
    import psutil

    return float(psutil.virtual_memory().available)


def reserve(descriptor: int, size: int) -> None:
    """Allocates the file's disk space, so that a full disk is an error here and not a signal at a later write."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)


def _in_file(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor in a memory-mapped file that is already deleted, so that it is freed with the process."""
    with tempfile.NamedTemporaryFile(prefix="fedsum-bank-") as file:
        reserve(file.fileno(), prod(shape) * dtype.itemsize)
        return torch.from_file(file.name, shared=True, size=prod(shape), dtype=dtype).view(shape)
