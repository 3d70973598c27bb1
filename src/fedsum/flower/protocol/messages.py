"""The messages between server and client, independent of any transport.

A lost reply must not leave server and client with different versions of the client's state. So each version has an id,
derived from its content, and every order names the version that the server expects:

    order: (job, epoch, step, base)     `base`: the version of this client's state that the server merged last
    reply: the same, and `version`      the state after this step; merged only if `base` is still the last merged one

Before a client replies, it saves two versions: the merged one and the pending one. An order that names the pending
version proves that it was merged. An order that still names the older version proves that it was not. An order that
names neither was made for a state that this client does not have, whatever its epoch and step.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ...algorithms import Message, Round, State

NEVER = ""
"""the base of a client from which nothing was merged in this epoch: its state is the initial one"""

Status = Literal["done", "lost", "ahead"]
"""
done: the reply holds the result;
lost: the client does not have the state that the order names;
ahead: the client has saved the result of a later order, so the server (or this order) is out of date
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
    base: str
    """the version of the client's state that the server merged last, or NEVER"""
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
    clip: float = 0.0
    """largest norm of the mean gradient; a larger one is scaled down. 0: no limit"""
    clip_norm: float = 0.0
    """largest norm of every gradient of the local steps; a larger one is scaled down. 0: no limit"""
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Order:
    """A request from the server to a client."""

    step_id: StepId
    terms: Terms
    vectors: Message
    start: Tensor | None = None
    """x at the beginning of the epoch, for a client whose initial state depends on it"""
    id: str = ""
    """derived from all of the above: a repeated order has the same id, an order with other content has another"""
    serial: int = 0
    """increases with every attempt at a round; a client never discards a result for an order with a smaller one"""


@dataclass(frozen=True)
class Reply:
    """A client's answer to an order."""

    step_id: StepId
    order: str
    """the id of the order"""
    status: Status
    vectors: Message = field(default_factory=dict)
    version: str = NEVER
    """with "done": the id of the client's state after this step; NEVER if clients have no state"""
    serial: int = 0
    """with "ahead": the largest serial that the client has seen"""


def content_id(*parts: object, vectors: Mapping[str, Tensor]) -> str:
    """An id derived from values and named tensors, bit for bit."""
    digest = hashlib.sha256(repr(parts).encode())
    for name in sorted(vectors):
        value = vectors[name].detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {list(value.shape)} ".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def version_id(order: str, state: State) -> str:
    """The id of the state that an order led to."""
    return content_id(order, vectors=state)
