"""The messages between server and client, independent of any transport.

A lost reply must not leave server and client with different versions of the client's state. So each version has a
number, its step, and every order names the version that the server expects:

    order: (job, epoch, step, last)     `last`: the step whose result the server merged last from this client
    reply: (job, epoch, step, last)     merged only if `last` is still the last merged step

Before a client replies, it saves two versions: the merged one and the pending one. An order that names the pending
version proves that it was merged. An order that still names the older version proves that it was not.
"""

from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from ..algorithms import Message, Round

NEVER = -1
"""the last merged step of a client from which nothing was merged in this epoch: its state is the initial one"""

Status = Literal["done", "lost", "ahead"]
"""
done: the reply holds the result;
lost: the client does not have the state that the order names;
ahead: the client has seen a later epoch or step, so the server (or this order) is out of date
"""


@dataclass(frozen=True)
class StepId:
    """Names one step of one client. Server and client compare all of its fields."""

    job: str
    """the training; it may span several Flower runs"""
    epoch: int
    """increases whenever all clients' states are reset"""
    step: int
    """2t for the work of round t, 2t + 1 for the message after its merge"""
    last: int
    """the client's last merged step, or NEVER"""
    client: int

    @property
    def t(self) -> int:
        """The round."""
        return self.step // 2

    @property
    def farewell(self) -> bool:
        """Whether this is the message after the merge."""
        return self.step % 2 == 1


@dataclass(frozen=True)
class Terms:
    """The settings that a client needs to compute its result."""

    now: Round
    """its t counts from the first round of the epoch, when all states were new"""
    seed: int
    batch_size: int
    dtype: str
    """of all vectors, as torch names it"""


@dataclass(frozen=True)
class Order:
    """A request from the server to a client."""

    step_id: StepId
    terms: Terms
    vectors: Message
    start: Tensor | None = None
    """x at the beginning of the epoch, for a client whose initial state depends on it"""


@dataclass(frozen=True)
class Reply:
    """A client's answer to an order."""

    step_id: StepId
    status: Status
    vectors: Message = field(default_factory=dict)
    epoch: int = 0
    """with "ahead": the latest epoch that the client has seen"""
