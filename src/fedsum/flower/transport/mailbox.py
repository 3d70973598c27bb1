"""The messages of one round."""

import time
from collections.abc import Iterator

from flwr.app import Message as FlowerMessage
from flwr.app import RecordDict
from flwr.serverapp import Grid

from ...algorithms import Traffic
from ..protocol import Order, ServerState
from .reply_limits import ReplyLimits
from .reply_puller import PulledReply, ReplyPuller
from .roster import HELLO
from .wire import from_order, size_in_bytes


class Mailbox:
    """Sends the orders of a round, collects the replies until its deadline, and counts the traffic.

    Args:
      grid: Flower's grid, which delivers the messages.
      state: the server state, whose `sent` counts every message.
      deadline: a time of time.monotonic(); messages expire then.
      limits: larger replies are refused.
    """

    def __init__(self, grid: Grid, state: ServerState, deadline: float, limits: ReplyLimits) -> None:
        self.grid, self.state, self.deadline = grid, state, deadline
        self._puller = ReplyPuller(grid, limits)
        self.unanswered: dict[str, int] = {}
        """the client of each order without a reply, by message id"""
        self._nodes: dict[str, int] = {}
        """the node of each order, by message id"""
        self._reminded: set[str] = set()
        """orders whose nodes got a second message"""
        self.late: set[int] = set()
        """clients that replied after a second message"""
        self.bytes_down = self.bytes_up = 0

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def send(self, kind: str, orders: dict[int, Order]) -> None:
        """Sends each node its order."""
        if not orders or self.seconds_left <= 0:
            return
        messages = []
        for node, order in orders.items():
            group = str(order.step_id.t)
            message = FlowerMessage(from_order(order), node, kind, ttl=self.seconds_left, group_id=group)
            messages.append(message)
            self.bytes_down += self._count(message)
        for message_id, (node, order) in zip(self.grid.push_messages(messages), orders.items(), strict=True):
            if message_id:
                self.unanswered[message_id], self._nodes[message_id] = order.step_id.client, node

    def remind(self) -> None:
        """Sends a second message to each node that has not replied to its order, once per order.

        Flower's SuperNode can fall one message behind. If a client app dies after its reply, Flower adds an error
        reply, up to a minute later, to the order that the SuperNode is working on. That order then has two replies, and
        from then on the SuperNode uploads each reply only when the next message arrives. The second message asks for
        the client id, because that changes nothing. Its reply is not read.
        """
        overdue = [message_id for message_id in self.unanswered if message_id not in self._reminded]
        if not overdue or self.seconds_left <= 0:
            return
        self._reminded.update(overdue)
        nodes = [self._nodes[message_id] for message_id in overdue]
        self.grid.push_messages([FlowerMessage(RecordDict(), node, HELLO, ttl=self.seconds_left) for node in nodes])

    def receive(self) -> Iterator[tuple[int, PulledReply]]:
        """The replies that have arrived since the last call, one per order."""
        # With at least a second, a reply that arrived just before the deadline is still read.
        until = max(self.deadline, time.monotonic() + 1)
        for reply in self._puller.pull(list(self.unanswered), until) if self.unanswered else ():
            client = self.unanswered.pop(reply.order_id, None)
            if client is None:
                continue
            if reply.order_id in self._reminded:
                self.late.add(client)
            if reply.message is None or reply.message.has_content():
                self.bytes_up += self._count(reply.message, reply.bytes)
            yield client, reply

    def close(self) -> None:
        """Gives up replies that are not complete."""
        self._puller.close()

    def _count(self, message: FlowerMessage | None, size: int = 0) -> int:
        """Adds a message to the traffic of the run, and returns its bytes."""
        records = message.content.array_records.values() if message else ()
        arrays = ((name, array) for record in records for name, array in record.items())
        vectors = sum(len(array.shape) == 1 and ":" not in name for name, array in arrays)  # as `count` does
        traffic = Traffic(vectors=vectors, bytes=size or (size_in_bytes(message) if message else 0))
        self.state.sent += traffic
        return traffic.bytes
