"""Which SuperNode is which client."""

import time
from collections.abc import Callable, Mapping

from flwr.app import Message as Letter
from flwr.app import RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

HELLO = "query.hello"


class Roster:
    """Knows clients by their SuperNode's registered public key, or else asks each SuperNode for its client id.

    Args:
      n: N.
      keys: the client of each public key (PEM); None where there is no authentication, and ids are believed.
      note: where to say what is odd.
      patience: seconds for a SuperNode to answer.
    """

    def __init__(self, n: int, keys: Mapping[bytes, int] | None, note: Callable[[str], None], patience: float) -> None:
        self.n, self.keys, self.note, self.patience = n, keys, note, patience
        self._client: dict[int, int | None] = {}
        self._asked: dict[str, tuple[int, float]] = {}

    def look(self, grid: Grid) -> dict[int, int]:
        """The node of each client that is online, by client."""
        nodes = {node.node_id: node for node in grid.get_nodes()}
        if self.keys is None:
            self._hear(grid)
            self._ask(grid, [node for node in nodes if node not in self._client])
        else:
            for node in nodes.values():
                self._recognise(node)
        found: dict[int, NodeInfo] = {}
        for node_id, node in nodes.items():
            client = self._client.get(node_id)
            if client is None:
                continue
            # A SuperNode that died is listed for a minute beside the one that took its place.
            if client not in found or found[client].last_activated_at < node.last_activated_at:
                found[client] = node
        return {client: found[client].node_id for client in sorted(found)}

    @property
    def settled(self) -> bool:
        """Whether every SuperNode that was asked has said who it is."""
        return not self._asked

    def _recognise(self, node: NodeInfo) -> None:
        if node.node_id in self._client:
            return
        client = (self.keys or {}).get(node.public_key)
        self._client[node.node_id] = client
        if client is None:
            self.note(f"node {node.node_id}: its key belongs to no client, so it is asked nothing")

    def _ask(self, grid: Grid, nodes: list[int]) -> None:
        waiting = {node for node, _ in self._asked.values()}
        letters = [Letter(RecordDict(), node, HELLO, ttl=self.patience) for node in nodes if node not in waiting]
        if not letters:
            return
        until = time.monotonic() + self.patience
        for letter, letter_id in zip(letters, grid.push_messages(letters), strict=True):
            if letter_id:
                self._asked[letter_id] = letter.metadata.dst_node_id, until

    def _hear(self, grid: Grid) -> None:
        if not self._asked:
            return
        for letter in grid.pull_messages(list(self._asked)):
            node, _ = self._asked.pop(letter.metadata.reply_to_message_id)
            if letter.has_error():
                self.note(f"node {node} did not say who it is: {letter.error.reason}")
                continue
            try:
                client = letter.content["hello"]["client"]
            except (KeyError, TypeError):
                client = None
            if type(client) is not int or not 0 <= client < self.n:
                self.note(f"node {node} says it is client {client!r}; there are 0 to {self.n - 1}")
                client = None
            self._client[node] = client
        now = time.monotonic()
        self._asked = {letter: (node, until) for letter, (node, until) in self._asked.items() if until > now}
