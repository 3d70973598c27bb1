"""Orders and replies as Flower's records, and back. What comes back is not trusted."""

from dataclasses import asdict
from typing import Any, get_args

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.app import Message as Letter
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from ..algorithms import Message, Round
from .protocol import Order, Reply, Slip, Status, Terms


class Unreadable(ValueError):
    """Not one of our messages, or a damaged one."""


def from_order(order: Order) -> RecordDict:
    terms = order.terms
    # Flower's whole numbers end at 2^63; a seed may be larger.
    told = {**asdict(terms.now), "seed": str(terms.seed), "batch_size": terms.batch_size, "dtype": terms.dtype}
    records: dict[str, ArrayRecord | MetricRecord | ConfigRecord] = {
        "slip": ConfigRecord(asdict(order.slip)),
        "terms": ConfigRecord(told),
        "vectors": from_vectors(order.vectors),
    }
    if order.start is not None:
        records["start"] = from_vectors({"x": order.start})
    return RecordDict(records)


def to_order(content: RecordDict) -> Order:
    try:
        told: dict[str, Any] = dict(content["terms"])
        plain = {"batch_size": told.pop("batch_size"), "dtype": told.pop("dtype")}
        seed = int(told.pop("seed"))
        start = to_vectors(content["start"])["x"] if "start" in content else None
        return Order(_slip(content), Terms(Round(**told), seed, **plain), to_vectors(content["vectors"]), start)
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"an order that cannot be read: {error!r}") from error


def from_reply(reply: Reply) -> RecordDict:
    return RecordDict(
        {
            "slip": ConfigRecord(asdict(reply.slip)),
            "status": ConfigRecord({"status": reply.status, "epoch": reply.epoch}),
            "vectors": from_vectors(reply.vectors),
        }
    )


def to_reply(content: RecordDict) -> Reply:
    try:
        said: dict[str, Any] = dict(content["status"])
        status, epoch = said["status"], said["epoch"]
        if status not in get_args(Status) or not isinstance(epoch, int):
            raise ValueError(f"status {status!r}")
        return Reply(_slip(content), status, to_vectors(content["vectors"]), epoch)
    except Exception as error:  # whatever a client may send, it must not stop the round
        raise Unreadable(f"a reply that cannot be read: {error!r}") from error


def from_vectors(vectors: Message) -> ArrayRecord:
    return ArrayRecord({name: Array(value.detach().cpu().numpy()) for name, value in vectors.items()})


def to_vectors(record: Any) -> Message:
    if not isinstance(record, ArrayRecord):
        raise TypeError("not arrays")
    return {name: torch.from_numpy(array.numpy()) for name, array in record.items()}


def size(letter: Letter) -> int:
    """Bytes of a message as they go over the network, headers of its records included."""
    return sum(len(part.deflate()) for part in get_all_nested_objects(letter).values())


def _slip(content: RecordDict) -> Slip:
    said: dict[str, Any] = dict(content["slip"])
    slip = Slip(**said)
    numbers = (slip.epoch, slip.step, slip.last, slip.client)
    if not isinstance(slip.job, str) or not all(type(number) is int for number in numbers):
        raise TypeError("a slip with fields of the wrong type")
    return slip
