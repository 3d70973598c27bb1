"""The messages of one round."""

import time
from collections.abc import Iterable

from flwr.app import Message as FlowerMessage
from flwr.serverapp import Grid

from ..algorithms import Traffic
from .journal import Journal
from .protocol import Order
from .wire import from_order, size_in_bytes


class Mailbox:
    """Which messages are out, until when, and how much went over the network."""

    def __init__(self, grid: Grid, journal: Journal, until: float) -> None:
        self.grid, self.journal, self.until = grid, journal, until
        self.open: dict[str, int] = {}
        self.down = self.up = 0

    @property
    def left(self) -> float:
        return self.until - time.monotonic()

    def send(self, kind: str, orders: dict[int, Order]) -> None:
        if not orders or self.left <= 0:
            return
        messages = []
        for node, order in orders.items():
            message = FlowerMessage(from_order(order), node, kind, ttl=self.left, group_id=str(order.step_id.t))
            messages.append(message)
            self.down += self._count(message)
        for message_id, order in zip(self.grid.push_messages(messages), orders.values(), strict=True):
            if message_id:
                self.open[message_id] = order.step_id.client

    def receive(self) -> Iterable[tuple[int, FlowerMessage]]:
        """The replies that have come; each message gets one."""
        for message in self.grid.pull_messages(list(self.open)) if self.open else ():
            client = self.open.pop(message.metadata.reply_to_message_id, None)
            if client is None:
                continue
            if message.has_content():
                self.up += self._count(message)
            yield client, message

    def _count(self, message: FlowerMessage) -> int:
        """Adds a message to what the run has sent, and returns its bytes."""
        arrays = [array for record in message.content.array_records.values() for array in record.values()]
        sent = Traffic(vectors=sum(len(array.shape) == 1 for array in arrays), bytes=size_in_bytes(message))
        self.journal.sent += sent
        return sent.bytes
