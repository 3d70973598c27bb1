"""The clients' vectors, kept only for clients that were seen."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ..algorithms import State
from ..participation import Ids


class StateBank(Mapping[int, State]):
    """A state for each of N clients, held for those that were ever active; the others have `initial`.

    >>> import numpy as np
    >>> bank = StateBank({"h": torch.zeros(2)})
    >>> cohort = bank.gather(np.array([3, 900_000]))
    >>> bank.scatter(np.array([3, 900_000]), {"h": cohort["h"] + 1})
    >>> len(bank), bank[3]["h"]
    (2, tensor([1., 1.]))
    """

    def __init__(self, initial: State) -> None:
        self.initial = initial
        self._slot: dict[int, int] = {}
        self._rows = {name: value.new_empty(0, *value.shape) for name, value in initial.items()}

    def gather(self, clients: Ids) -> State:
        """The stacked state of a cohort; from now on these clients count as seen."""
        slots = self._slots(clients)
        return {name: rows.index_select(0, slots) for name, rows in self._rows.items()}

    def scatter(self, clients: Ids, state: State) -> None:
        slots = self._slots(clients)
        for name, rows in self._rows.items():
            rows.index_copy_(0, slots, state[name])

    def mean(self, name: str, n: int) -> Tensor:
        """The mean over all n clients, seen or not."""
        seen = self._rows[name][: len(self)]
        return (seen.sum(0) + (n - len(self)) * self.initial[name]) / n

    def _slots(self, clients: Ids) -> Tensor:
        known = len(self._slot)
        slots = [self._slot.setdefault(client, len(self._slot)) for client in clients.tolist()]
        for name, first in self.initial.items():
            rows = self._rows[name]
            if len(self._slot) > len(rows):
                # Doubling: growing costs O(clients seen) in all.
                more = max(len(self._slot), 2 * len(rows)) - len(rows)
                self._rows[name] = rows = torch.cat([rows, rows.new_empty(more, *first.shape)])
            rows[known : len(self._slot)] = first
        device = next(iter(self._rows.values())).device if self._rows else None
        return torch.tensor(slots, dtype=torch.int64, device=device)

    def __getitem__(self, client: int) -> State:
        slot = self._slot[client]
        return {name: rows[slot] for name, rows in self._rows.items()}

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._slot))

    def __len__(self) -> int:
        return len(self._slot)
