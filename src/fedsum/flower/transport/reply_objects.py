"""The objects of a Flower message, checked before Flower decodes them.

Flower stores a message as a tree of objects. An Array names the chunks of its data by index, and may name a chunk many
times. An ArrayRecord may name an Array many times. So one megabyte on the network can decode to gigabytes.
"""

import json
from collections.abc import Mapping

from flwr.app import Message as FlowerMessage
from flwr.supercore.inflatable.inflatable_object import get_object_head_values_from_object_content
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from .reply_limits import ReplyTooLarge


def to_message(message_id: str, contents: dict[str, bytes], inflated_limit: int) -> FlowerMessage:
    """Decodes a message. Raises a ReplyTooLarge, or any exception if an object is malformed.

    Args:
      message_id: the object id of the message.
      contents: the message's objects, by id; emptied to save memory.
      inflated_limit: largest number of bytes of all vectors once decoded.
    """
    size = _inflated_bytes(contents)
    if size > inflated_limit:
        raise ReplyTooLarge(f"{size:,} bytes once decoded, more than {inflated_limit:,}")
    message = inflate_object_from_contents(message_id, contents)
    if not isinstance(message, FlowerMessage):
        raise TypeError(f"not a message but a {type(message).__name__}")
    return message


def _inflated_bytes(contents: Mapping[str, bytes]) -> int:
    """Bytes of all arrays that the message's records name, each counted as often as it is named."""
    arrays: dict[str, int] = {}
    records: dict[str, list[str]] = {}
    named_records: list[str] = []
    for object_id, content in contents.items():
        kind, children, body_length = get_object_head_values_from_object_content(content)
        body = content[len(content) - body_length :]
        if kind == "Array":
            arrays[object_id] = _array_bytes(json.loads(body)["arraychunk_ids"], children, contents)
        elif kind == "ArrayRecord":
            records[object_id] = list(json.loads(body).values())
        elif kind == "RecordDict":
            named_records += json.loads(body).values()
    # The arrays themselves are decoded once, even if no record names them.
    named = sum(arrays[array] for record in named_records for array in records.get(record, ()))
    return max(named, sum(arrays.values()))


def _array_bytes(indices: list[int], children: list[str], contents: Mapping[str, bytes]) -> int:
    sizes = [len(contents[child]) for child in children]
    if not all(type(index) is int and 0 <= index < len(sizes) for index in indices):
        raise ValueError("an array with a chunk that does not exist")
    return sum(sizes[index] for index in indices)
