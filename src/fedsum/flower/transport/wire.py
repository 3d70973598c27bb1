"""Orders and replies as Flower's records, and back. Received records are not trusted."""

import math
from dataclasses import asdict
from io import BytesIO
from typing import Any, get_args

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from numpy.lib import format as npy

from ...algorithms import Message, Round
from ..protocol import Order, Reply, Status, StepId, Terms

CLOCK = "clock"


class UnreadableMessage(ValueError):
    """A damaged message, or one of another protocol."""


def from_order(order: Order) -> RecordDict:
    terms = order.terms
    # Flower's integers have 64 bits with sign; a seed may be larger.
    fields = {**asdict(terms.now), "seed": str(terms.seed), "batch_size": terms.batch_size, "dtype": terms.dtype}
    fields |= {"clip": terms.clip, "clip_norm": terms.clip_norm, "weight_decay": terms.weight_decay}
    fields |= {"id": order.id, "serial": order.serial}
    records: dict[str, ArrayRecord | MetricRecord | ConfigRecord] = {
        "step_id": ConfigRecord(asdict(order.step_id)),
        "terms": ConfigRecord(fields),
        "vectors": from_vectors(order.vectors),
    }
    if order.start is not None:
        records["start"] = from_vectors({"x": order.start})
    return RecordDict(records)


def to_order(content: RecordDict) -> Order:
    try:
        fields: dict[str, Any] = dict(content["terms"])
        batch_size, dtype, seed = fields.pop("batch_size"), fields.pop("dtype"), int(fields.pop("seed"))
        limits = [fields.pop(name) for name in ("clip", "clip_norm", "weight_decay")]
        order_id, serial = fields.pop("id"), fields.pop("serial")
        start = to_vectors(content["start"])["x"] if "start" in content else None
        terms = Terms(Round(**fields), seed, batch_size, dtype, *limits)
        return Order(_to_step_id(content), terms, to_vectors(content["vectors"]), start, order_id, serial)
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableMessage(f"an order that cannot be read: {error!r}") from error


def from_reply(reply: Reply) -> RecordDict:
    return RecordDict(
        {
            "step_id": ConfigRecord(asdict(reply.step_id)),
            "status": ConfigRecord(
                {"status": reply.status, "order": reply.order, "version": reply.version, "serial": reply.serial}
            ),
            "vectors": from_vectors(reply.vectors),
        }
    )


def to_reply(content: RecordDict) -> Reply:
    try:
        fields: dict[str, Any] = dict(content["status"])
        status, order, version, serial = (fields[name] for name in ("status", "order", "version", "serial"))
        if status not in get_args(Status) or type(serial) is not int:
            raise ValueError(f"status {status!r}, serial {serial!r}")
        if not isinstance(order, str) or not isinstance(version, str):
            raise TypeError("ids of the wrong type")
        return Reply(_to_step_id(content), order, status, to_vectors(content["vectors"]), version, serial)
    except Exception as error:  # no reply of a client may stop the round
        raise UnreadableMessage(f"a reply that cannot be read: {error!r}") from error


def clock_of(content: RecordDict) -> float | None:
    """The client's clock when it replied, in seconds since 1970; None if the reply does not hold it."""
    record = content.get(CLOCK)
    value = record.get("seconds") if isinstance(record, ConfigRecord) else None
    return value if isinstance(value, float) and math.isfinite(value) else None


def from_vectors(vectors: Message) -> ArrayRecord:
    return ArrayRecord({name: Array(value.detach().cpu().numpy()) for name, value in vectors.items()})


def to_vectors(record: Any) -> Message:
    if not isinstance(record, ArrayRecord):
        raise TypeError("not an ArrayRecord")
    return {name: torch.from_numpy(_decoded(array.data)) for name, array in record.items()}


def _decoded(data: bytes) -> np.ndarray:
    """The array in the bytes of a .npy file. NumPy alone would allocate what the file's header claims."""
    stream = BytesIO(data)
    read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(stream)]
    shape, column_major, dtype = read_header(stream)
    if column_major and len(shape) > 1:
        raise ValueError("an array in column-major order")
    return np.frombuffer(data, dtype, offset=stream.tell()).reshape(shape).copy()


def size_in_bytes(message: FlowerMessage) -> int:
    """The bytes that a message takes on the network, headers of its records included."""
    return sum(len(part.deflate()) for part in get_all_nested_objects(message).values())


def _to_step_id(content: RecordDict) -> StepId:
    fields: dict[str, Any] = dict(content["step_id"])
    step_id = StepId(**fields)
    numbers, names = (step_id.epoch, step_id.step, step_id.client), (step_id.job, step_id.base)
    if not all(isinstance(name, str) for name in names) or not all(type(number) is int for number in numbers):
        raise TypeError("a step id with fields of the wrong type")
    return step_id
