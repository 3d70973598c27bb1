"""The SuperNode of each client."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import Message as FlowerMessage
from flwr.app import RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from .reply_limits import ReplyLimits
from .reply_puller import PulledReply, ReplyPuller

HELLO = "query.hello"


class Roster:
    """Identifies clients by the registered public keys of their SuperNodes, or asks each SuperNode for its client id.

    If two SuperNodes are the same client, the one that connected last gets the orders.

    Args:
      n: N.
      keys: the client of each public key (PEM). None without authentication: then client ids are not verified.
      warn: called with each warning.
      patience: seconds that a SuperNode has to reply with its client id; it is asked again later.
      limits: larger replies are refused.
    """

    def __init__(
        self,
        n: int,
        keys: Mapping[bytes, int] | None,
        warn: Callable[[str], None],
        patience: float,
        limits: ReplyLimits,
    ) -> None:
        self.n, self.keys, self.warn, self.patience, self.limits = n, keys, warn, patience, limits
        self._clients: dict[int, int | None] = {}
        self._questions: dict[str, tuple[int, float]] = {}
        self._ask_again: dict[int, float] = {}
        self._puller: ReplyPuller | None = None
        self._chosen: dict[int, tuple[str, int]] = {}
        self._restarted: set[int] = set()
        self._duplicates: set[tuple[int, int]] = set()

    def online(self, grid: Grid) -> dict[int, int]:
        """The SuperNode of each client that is online, by client."""
        nodes = {node.node_id: node for node in grid.get_nodes()}
        if self.keys is None:
            self._receive_ids(grid)
            self._ask_for_ids(grid, [node_id for node_id in nodes if node_id not in self._clients])
        else:
            for node in nodes.values():
                self._identify_by_key(node)
        newest: dict[int, tuple[str, int]] = {}
        for node_id, node in nodes.items():
            client = self._clients.get(node_id)
            if client is None:
                continue
            connection = node.last_activated_at, node_id
            if client in newest:
                self._warn_duplicate(client, newest[client], connection)
            newest[client] = max(newest.get(client, connection), connection)
        for client, connection in newest.items():
            if self._chosen.get(client, connection) != connection:
                self._restarted.add(client)
        self._chosen |= newest
        return {client: newest[client][1] for client in sorted(newest)}

    def take_restarted(self) -> set[int]:
        """The clients whose SuperNode was started again since the last call."""
        restarted, self._restarted = self._restarted, set()
        return restarted

    @property
    def complete(self) -> bool:
        """Whether every SuperNode that was asked for its client id has replied or timed out."""
        return not self._questions

    def _warn_duplicate(self, client: int, one: tuple[str, int], other: tuple[str, int]) -> None:
        older, newer = sorted((one, other))
        pair = older[1], newer[1]
        if pair in self._duplicates:
            return
        self._duplicates.add(pair)
        # A SuperNode that died is listed for a minute beside its replacement, which is harmless.
        self.warn(
            f"SuperNodes {older[1]} and {newer[1]} are both client {client}: {newer[1]}, which connected last, gets the"
            " orders. If both are running, stop one"
        )

    def _identify_by_key(self, node: NodeInfo) -> None:
        if node.node_id in self._clients:
            return
        client = (self.keys or {}).get(node.public_key)
        self._clients[node.node_id] = client
        if client is None:
            self.warn(f"node {node.node_id}: its public key belongs to no client; it gets no orders")

    def _ask_for_ids(self, grid: Grid, nodes: list[int]) -> None:
        now = time.monotonic()
        asked = {node for node, _ in self._questions.values()}
        due = [node for node in nodes if node not in asked and self._ask_again.get(node, now) <= now]
        messages = [FlowerMessage(RecordDict(), node, HELLO, ttl=self.patience) for node in due]
        if not messages:
            return
        for message, message_id in zip(messages, grid.push_messages(messages), strict=True):
            self._ask_again[message.metadata.dst_node_id] = now + self.patience
            if message_id:
                self._questions[message_id] = message.metadata.dst_node_id, now + self.patience

    def _receive_ids(self, grid: Grid) -> None:
        if not self._questions:
            return
        self._puller = self._puller or ReplyPuller(grid, self.limits)
        now = time.monotonic()
        for reply in self._puller.pull(list(self._questions), now + 1):
            if reply.order_id in self._questions:
                node, _ = self._questions.pop(reply.order_id)
                self._receive_id(node, reply)
        self._questions = {
            message_id: (node, deadline) for message_id, (node, deadline) in self._questions.items() if deadline > now
        }

    def _receive_id(self, node: int, reply: PulledReply) -> None:
        message = reply.message
        if message is None or message.has_error():
            reason = reply.refusal if message is None else message.error.reason
            self.warn(f"node {node} did not say which client it is: {self.limits.shown(reason)}")
            return
        client = _claimed(message.content)
        if type(client) is not int or not 0 <= client < self.n:
            shown = self.limits.shown(repr(client))
            self.warn(f"node {node} claims to be client {shown}; client ids are 0 to {self.n - 1}")
            client = None
        self._clients[node] = client


def _claimed(content: RecordDict) -> Any:
    try:
        return content["hello"]["client"]
    except (KeyError, TypeError):
        return None
