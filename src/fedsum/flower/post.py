"""The letters of one round."""

import time
from collections.abc import Iterable

from flwr.app import Message as Letter
from flwr.serverapp import Grid

from ..algorithms import Traffic
from .journal import Journal
from .protocol import Order
from .wire import from_order, size


class Post:
    """Which letters are out, until when, and how much went over the network."""

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
        letters = []
        for node, order in orders.items():
            letter = Letter(from_order(order), node, kind, ttl=self.left, group_id=str(order.slip.t))
            letters.append(letter)
            self.down += self._count(letter)
        for letter_id, order in zip(self.grid.push_messages(letters), orders.values(), strict=True):
            if letter_id:
                self.open[letter_id] = order.slip.client

    def receive(self) -> Iterable[tuple[int, Letter]]:
        """The replies that have come; each letter gets one."""
        for letter in self.grid.pull_messages(list(self.open)) if self.open else ():
            client = self.open.pop(letter.metadata.reply_to_message_id, None)
            if client is None:
                continue
            if letter.has_content():
                self.up += self._count(letter)
            yield client, letter

    def _count(self, letter: Letter) -> int:
        """Adds a letter to what the run has sent, and returns its bytes."""
        arrays = [array for record in letter.content.array_records.values() for array in record.values()]
        sent = Traffic(vectors=sum(len(array.shape) == 1 for array in arrays), bytes=size(letter))
        self.journal.sent += sent
        return sent.bytes
