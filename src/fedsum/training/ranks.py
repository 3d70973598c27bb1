"""One run on several processes (ranks) of torch.distributed, as torchrun starts them.

Clients are split over the ranks, and each rank keeps the states of its own. Every rank has the server's state. The sum
over the cohort is all that a round exchanges.
"""

import atexit
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from ..participation import Ids

T = TypeVar("T")
_BACKENDS = "cpu:gloo,cuda:nccl"


class LostRank(OSError):
    """Another process of the run ended or cannot be reached."""


@dataclass(frozen=True)
class Ranks:
    """The processes of a run, of which this one is number `rank`. A run on one process has one.

    >>> Ranks().share(torch.arange(3).numpy())
    array([0, 1, 2])
    >>> Ranks(1, 2).share(torch.arange(5).numpy())
    array([1, 3])
    """

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this rank evaluates, and writes the run's folder."""
        return self.rank == 0

    def share(self, clients: Ids) -> Ids:
        """Those of the clients that belong to this rank: i with i mod `count` = `rank`, in every round."""
        mine: Ids = clients[clients % self.count == self.rank]
        return mine

    def device(self, device: torch.device) -> torch.device:
        """The device of this rank, if the ranks of a machine share the name `cuda`."""
        several = self.count > 1 and str(device) == "cuda"
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if several else device

    def sum(self, totals: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The sum over all ranks, in the order of the ranks: a given number of ranks always gives the same bits."""
        if self.count == 1:
            return dict(totals)
        return {name: self._sum(value) for name, value in totals.items()}

    def from_first(self, value: Callable[[], T]) -> T:
        """The value that rank 0 computes."""
        if self.count == 1:
            return value()
        values = [value() if self.first else None]
        with _connected():
            dist.broadcast_object_list(values, src=0)
        return values[0]  # type: ignore[return-value]

    def gathered(self, tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
        """On rank 0 the tensors of every other rank, in host memory; on the others an empty list."""
        if self.count == 1:
            return []
        with _connected():
            if not self.first:
                dist.send_object_list([{name: (tuple(v.shape), v.dtype) for name, v in tensors.items()}], dst=0)
                for value in tensors.values():
                    dist.send(value.contiguous(), dst=0)
                return []
            return [self._received(rank) for rank in range(1, self.count)]

    def _received(self, rank: int) -> dict[str, Tensor]:
        announced: list[Any] = [None]
        dist.recv_object_list(announced, src=rank)
        tensors = {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in announced[0].items()}
        for value in tensors.values():
            dist.recv(value, src=rank)
        return tensors

    def _sum(self, value: Tensor) -> Tensor:
        total = torch.zeros_like(value)
        for rank in range(self.count):
            part = value.contiguous() if rank == self.rank else torch.empty_like(total)
            with _connected():
                dist.broadcast(part, src=rank)
            total += part
        return total


def joined_ranks() -> Ranks:
    """The ranks that torchrun started; one rank without torchrun. Joins the process group at the first call."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1 or "RANK" not in os.environ:
        return Ranks()
    if not dist.is_initialized():
        backend = _BACKENDS if torch.cuda.is_available() else "gloo"
        with _connected():
            dist.init_process_group(backend)
        # gloo's threads otherwise abort a process that ends while they run.
        atexit.register(dist.destroy_process_group)
    return Ranks(dist.get_rank(), dist.get_world_size())


@contextmanager
def _connected() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        # Without the place in the library's source, which comes first in brackets.
        reason = re.sub(r"^\[[^]]*\] ", "", str(error).splitlines()[0])[:120]
        rank = os.environ.get("RANK", "0")
        raise LostRank(
            f"rank {rank}: another process of this run ended or cannot be reached ({reason}); start the same command "
            "again to resume from the last checkpoint"
        ) from error
