"""The SuperNode of each client."""

import time
from collections.abc import Callable, Mapping

from flwr.app import Message as FlowerMessage
from flwr.app import RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

HELLO = "query.hello"


class Roster:
    """Identifies clients by the registered public keys of their SuperNodes, or asks each SuperNode for its client id.

    Args:
      n: N.
      keys: the client of each public key (PEM). None without authentication: then client ids are not verified.
      warn: called with each warning.
      patience: seconds that a SuperNode has to reply with its client id.
    """

    def __init__(self, n: int, keys: Mapping[bytes, int] | None, warn: Callable[[str], None], patience: float) -> None:
        self.n, self.keys, self.warn, self.patience = n, keys, warn, patience
        self._clients: dict[int, int | None] = {}
        self._questions: dict[str, tuple[int, float]] = {}

    def online(self, grid: Grid) -> dict[int, int]:
        """The SuperNode of each client that is online, by client."""
        nodes = {node.node_id: node for node in grid.get_nodes()}
        if self.keys is None:
            self._receive_ids(grid)
            self._ask_for_ids(grid, [node_id for node_id in nodes if node_id not in self._clients])
        else:
            for node in nodes.values():
                self._identify_by_key(node)
        newest: dict[int, NodeInfo] = {}
        for node_id, node in nodes.items():
            client = self._clients.get(node_id)
            if client is None:
                continue
            # A SuperNode that died is listed for a minute beside its replacement.
            if client not in newest or newest[client].last_activated_at < node.last_activated_at:
                newest[client] = node
        return {client: newest[client].node_id for client in sorted(newest)}

    @property
    def complete(self) -> bool:
        """Whether every SuperNode that was asked for its client id has replied or timed out."""
        return not self._questions

    def _identify_by_key(self, node: NodeInfo) -> None:
        if node.node_id in self._clients:
            return
        client = (self.keys or {}).get(node.public_key)
        self._clients[node.node_id] = client
        if client is None:
            self.warn(f"node {node.node_id}: its public key belongs to no client; it gets no orders")

    def _ask_for_ids(self, grid: Grid, nodes: list[int]) -> None:
        asked = {node for node, _ in self._questions.values()}
        messages = [FlowerMessage(RecordDict(), node, HELLO, ttl=self.patience) for node in nodes if node not in asked]
        if not messages:
            return
        deadline = time.monotonic() + self.patience
        for message, message_id in zip(messages, grid.push_messages(messages), strict=True):
            if message_id:
                self._questions[message_id] = message.metadata.dst_node_id, deadline

    def _receive_ids(self, grid: Grid) -> None:
        if not self._questions:
            return
        for message in grid.pull_messages(list(self._questions)):
            node, _ = self._questions.pop(message.metadata.reply_to_message_id)
            if message.has_error():
                self.warn(f"node {node} did not say which client it is: {message.error.reason}")
                continue
            try:
                client = message.content["hello"]["client"]
            except (KeyError, TypeError):
                client = None
            if type(client) is not int or not 0 <= client < self.n:
                self.warn(f"node {node} claims to be client {client!r}; client ids are 0 to {self.n - 1}")
                client = None
            self._clients[node] = client
        now = time.monotonic()
        self._questions = {
            message_id: (node, deadline) for message_id, (node, deadline) in self._questions.items() if deadline > now
        }
