"""Message sizes and state of an algorithm, measured by one round of its functions."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .base import Algorithm, Message, Round, State


@dataclass(frozen=True)
class Traffic:
    """The size of a message: the number of model-sized vectors, and the bytes of all its tensors."""

    vectors: int = 0
    bytes: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.vectors + other.vectors, self.bytes + other.bytes)

    def __mul__(self, copies: int) -> "Traffic":
        return Traffic(self.vectors * copies, self.bytes * copies)


def count(message: Message, *, stacked: bool = False) -> Traffic:
    """The size of one message, or of a cohort's messages stacked along a first dimension.

    The parts of a compressed vector, such as `delta` and `delta:indices`, count as one vector.

    >>> count({"x": torch.zeros(10), "E": torch.tensor(0.0, dtype=torch.float64)})
    Traffic(vectors=1, bytes=48)
    """
    vectors = 0
    for name, value in message.items():
        if value.dim() == 1 + stacked and ":" not in name:
            vectors += len(value) if stacked else 1
    return Traffic(vectors, sum(value.numel() * value.element_size() for value in message.values()))


@dataclass(frozen=True)
class Card:
    """The tensors that an algorithm sends and stores, by name; the names of scalars are in parentheses."""

    name: str
    """the algorithm's name in files"""
    label: str
    """the algorithm's name in figures, tables and messages"""
    down: tuple[str, ...]
    up: tuple[str, ...]
    vectors_down: int
    vectors_up: int
    client_state: tuple[str, ...]
    server_state: tuple[str, ...]
    server_memory: tuple[str, ...]
    """the server's memory per client"""
    summable: bool
    """whether uplinks may be summed before they reach the server"""


def card(algorithm: Algorithm) -> Card:
    """Runs one round of `algorithm` with one client and a model of two parameters, and counts its messages.

    >>> from fedsum.algorithms import FedSUMCR
    >>> card(FedSUMCR()).down
    ('x', '(E)')
    """
    x0 = torch.zeros(2)
    now = Round(t=0, N=1, K=1, eta_l=1.0, eta_g=1.0)
    server, client, row = algorithm.init_server(x0, now), algorithm.init_client(x0), algorithm.init_row(x0)
    down = algorithm.downlink(server, now)
    uplink, _ = algorithm.report(client, down, algorithm.plan(client, down, now), torch.ones(2), now)
    contribution, _ = algorithm.digest(row, algorithm.unpack(uplink, x0), now)
    farewell = algorithm.farewell(algorithm.merge(server, contribution, 1, now), now)
    return Card(
        name=algorithm.name,
        label=algorithm.label,
        down=_names(down) + _names(farewell),
        up=_names(uplink),
        vectors_down=(count(down) + count(farewell)).vectors,
        vectors_up=count(uplink).vectors,
        client_state=_names(client),
        server_state=_names(server),
        server_memory=_names(row),
        summable=algorithm.summable,
    )


def _names(tensors: State) -> tuple[str, ...]:
    def shown(name: str, value: Tensor) -> str:
        return name if value.dim() else f"({name})"

    return tuple(shown(name, value) for name, value in tensors.items())
