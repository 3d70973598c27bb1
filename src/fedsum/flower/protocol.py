"""What server and client say to each other, free of any transport.

A reply that is lost must not leave the two sides with different ideas of a client's state. So every state of
a client has a number, and the server says in each order which one it counts on:

    order: (job, epoch, step, last)     `last`: the step whose result the server merged last from this client
    reply: (job, epoch, step, last)     merged only if `last` is still what the server remembers

A client keeps two states, the one merged and the one pending, durably, before it answers. An order that names
the pending one proves that it was merged; one that still names the older proves that it was not.
"""

from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from ..algorithms import Message, Round

NEVER = -1
"""the step of a client from which nothing was merged in this epoch: its state is the initial one"""

Status = Literal["done", "lost", "ahead"]
"""
done: here is the result;
lost: the client does not have the state that the server counts on;
ahead: the client has already seen a later epoch or step, so the server (or this order) is out of date
"""


@dataclass(frozen=True)
class Slip:
    """What is compared on both sides."""

    job: str
    """the training, whatever Flower runs it is spread over"""
    epoch: int
    """grows when all clients' states are declared void"""
    step: int
    """2t for the work of round t, 2t + 1 for the message after its merge"""
    last: int
    """the client's last merged step, or NEVER"""
    client: int

    @property
    def t(self) -> int:
        return self.step // 2

    @property
    def farewell(self) -> bool:
        return self.step % 2 == 1


@dataclass(frozen=True)
class Terms:
    """What a client needs to know to work, besides vectors."""

    now: Round
    """its t counts from the beginning of the epoch, when all states were new"""
    seed: int
    batch_size: int
    dtype: str
    """of all vectors, as torch names it"""


@dataclass(frozen=True)
class Order:
    slip: Slip
    terms: Terms
    vectors: Message
    start: Tensor | None = None
    """x at the beginning of the epoch, for a client that must make its initial state from it"""


@dataclass(frozen=True)
class Reply:
    slip: Slip
    status: Status
    vectors: Message = field(default_factory=dict)
    epoch: int = 0
    """with "ahead": the latest epoch that the client has seen"""
