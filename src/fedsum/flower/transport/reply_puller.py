"""Replies from the SuperLink. Each is pulled, checked and decoded on its own, under limits of size.

Flower's `Grid.pull_messages` decodes all replies in one call. A malformed reply raises, and all replies are lost. It
waits, for up to two hours, until a reply is uploaded, and it has no limit of size. It also believes the order id that a
reply contains, so that a client could answer another client's order.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
from flwr.app import Message as FlowerMessage
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.superlink.grid import HttpGrid

from .reply_limits import ReplyLimits, ReplyTooLarge
from .reply_objects import to_message


@dataclass(frozen=True)
class PulledReply:
    """The reply to one order: a message, or the reason why it cannot be read."""

    order_id: str
    """the message id of the order, as the SuperLink recorded it"""
    message: FlowerMessage | None
    bytes: int = 0
    """on the network"""
    refusal: str = ""


@dataclass
class _Upload:
    """A reply that the SuperLink has announced. Its objects may still be on their way."""

    order_id: str
    message_id: str
    missing: list[str]
    contents: dict[str, bytes] = field(default_factory=dict)
    bytes: int = 0


class ReplyPuller:
    """Pulls the replies to a set of orders.

    Args:
      grid: Flower's grid.
      limits: larger replies are refused.
    """

    def __init__(self, grid: Grid, limits: ReplyLimits) -> None:
        self.grid, self.limits = grid, limits
        self._uploads: dict[str, _Upload] = {}

    def pull(self, order_ids: Iterable[str], until: float) -> Iterator[PulledReply]:
        """The replies that are complete. Returns at the time `until` of time.monotonic() at the latest."""
        if not isinstance(self.grid, HttpGrid):
            for order_id in order_ids:
                yield from self._pull_from(self.grid, order_id)
            return
        waiting = [order_id for order_id in order_ids if order_id not in self._uploads]
        if waiting:
            yield from self._announced(self._client.PullMessages(PullAppMessagesRequest(message_ids=waiting)))
        for upload in list(self._uploads.values()):
            reply = self._continued(upload, until)
            if reply:
                self._end(upload)
                yield reply

    def close(self) -> None:
        """Deletes the objects of replies that are not complete from the SuperLink."""
        for upload in list(self._uploads.values()):
            self._end(upload)

    def _pull_from(self, grid: Grid, order_id: str) -> Iterator[PulledReply]:
        """Replies through a grid other than Flower's own, such as that of Flower's simulation."""
        try:
            messages = list(grid.pull_messages([order_id]))
        except Exception as error:
            yield PulledReply(order_id, None, refusal=_unreadable(error))
            return
        for message in messages:
            yield PulledReply(order_id, message)

    @property
    def _client(self) -> Any:
        # Flower has no public way to pull a message without decoding it.
        return self.grid._runtime_client  # type: ignore[attr-defined]

    def _announced(self, response: Any) -> Iterator[PulledReply]:
        """Notes the replies that the SuperLink has announced. Yields those that are too large to begin with."""
        for message, tree in zip(response.messages_list, response.message_object_trees, strict=True):
            metadata = message.metadata
            ids = list(dict.fromkeys(node.object_id for node in iterate_object_tree(tree)))
            upload = _Upload(metadata.reply_to_message_id, metadata.message_id, ids)
            if len(ids) > self.limits.objects:
                self._end(upload)
                refusal = f"a reply of {len(ids):,} objects, more than {self.limits.objects:,}"
                yield PulledReply(upload.order_id, None, refusal=refusal)
            else:
                self._uploads[upload.order_id] = upload

    def _continued(self, upload: _Upload, until: float) -> PulledReply | None:
        """The reply, if all its objects have arrived by now."""
        try:
            if not self._has_arrived(upload, until):
                return None
            # The contents are the client's. The order that it answers is the SuperLink's knowledge.
            message = to_message(upload.message_id, upload.contents, self.limits.inflated)
            return PulledReply(upload.order_id, message, upload.bytes)
        except ReplyTooLarge as error:
            return PulledReply(upload.order_id, None, upload.bytes, f"a reply of {error}")
        except Exception as error:
            # The SuperLink cannot be reached, or has ended the run. No reply of a client may stop the round.
            if isinstance(error, httpx.TransportError) or run_is_over(error):
                raise
            return PulledReply(upload.order_id, None, upload.bytes, _unreadable(error))

    def _has_arrived(self, upload: _Upload, until: float) -> bool:
        """Pulls the objects that have arrived. Returns whether none is missing."""
        run_id = self.grid.run.run_id
        while upload.missing and time.monotonic() < until:
            object_id = upload.missing[-1]
            request = PullObjectRequest(node=_SUPERLINK, run_id=run_id, object_id=object_id)
            response = self._client.PullObject(request)
            if not response.object_found:
                raise LookupError("an object is missing")
            if not response.object_available:
                return False
            upload.missing.pop()
            upload.contents[object_id] = response.object_content
            upload.bytes += len(response.object_content)
            if upload.bytes > self.limits.message:
                raise ReplyTooLarge(f"more than {self.limits.message:,} bytes")
        return not upload.missing

    def _end(self, upload: _Upload) -> None:
        """Deletes the reply's objects from the SuperLink."""
        self._uploads.pop(upload.order_id, None)
        request = ConfirmMessageReceivedRequest(
            node=_SUPERLINK, run_id=self.grid.run.run_id, message_object_id=upload.message_id
        )
        self._client.ConfirmMessageReceived(request)


def run_is_over(error: BaseException) -> bool:
    """Whether the SuperLink refused a request because it no longer accepts this run's token."""
    return isinstance(error, httpx.HTTPStatusError) and error.response.status_code == httpx.codes.UNAUTHORIZED


_SUPERLINK = Node(node_id=SUPERLINK_NODE_ID)


def _unreadable(error: Exception) -> str:
    return f"a reply that cannot be read: {error!r}"
