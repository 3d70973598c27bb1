"""The durable state of a deployment's server."""

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor, from_numpy

from ..algorithms import Message, State, Traffic
from ..participation import DelayMeter
from .uplink_validator import RecentNorms


@dataclass
class ServerState:
    """Everything that must survive the server process. It is in the checkpoint before the next order is sent."""

    server: State
    """the algorithm's server state"""
    start: Tensor
    """x at the beginning of the epoch"""
    delays: DelayMeter
    """tau_t of the rounds done"""
    job: str = field(default_factory=lambda: secrets.token_hex(8))
    """names the training, on the server and on every client"""
    epoch: int = 0
    """increases whenever all client states are reset"""
    first_round: int = 0
    """the first round of the epoch"""
    t: int = 0
    """rounds done, and the number of the current round"""
    last: dict[int, int] = field(default_factory=dict)
    """the last merged step of each client in this epoch"""
    rows: dict[int, State] = field(default_factory=dict)
    """the algorithm's memory of each client"""
    table: dict[int, Message] = field(default_factory=dict)
    """with on_loss="table": the sum of each client's merged uplinks in this epoch"""
    losses: dict[int, int] = field(default_factory=dict)
    """how often each client has lost its state"""
    norms: RecentNorms = field(default_factory=RecentNorms)
    """norms of recently merged uplinks"""
    sent: Traffic = field(default_factory=Traffic)
    """messages sent and received so far"""
    seconds: float = 0.0
    """duration of the rounds done"""
    evaluated: int = -1
    """rounds done at the last evaluation; -1: none yet"""

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint, without those of single clients."""
        delays = {f"delays.{name}": from_numpy(values) for name, values in self.delays.state().items()}
        return {f"server.{name}": value for name, value in self.server.items()} | {"start": self.start} | delays

    def numbers(self) -> dict[str, Any]:
        """The rest of a checkpoint, as JSON can hold it."""
        return {
            "job": self.job,
            "epoch": self.epoch,
            "first_round": self.first_round,
            "t": self.t,
            "last": self.last,
            "losses": self.losses,
            "norms": self.norms.lists(),
            "sent": asdict(self.sent),
            "seconds": self.seconds,
            "evaluated": self.evaluated,
        }

    def client_tensors(self, client: int) -> dict[str, Tensor]:
        """The tensors of one client: its row and its entry in the table."""
        row, entry = self.rows.get(client, {}), self.table.get(client, {})
        tensors = {f"row.{name}": value for name, value in row.items()}
        return tensors | {f"table.{name}": value for name, value in entry.items()}

    @classmethod
    def restored(
        cls, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any], clients: Mapping[int, Mapping[str, Tensor]]
    ) -> "ServerState":
        """The state from its `tensors()`, its `numbers()`, and the `client_tensors` of each client that has any."""
        fields = dict(numbers)
        for name in ("last", "losses"):  # JSON turns the keys into strings
            fields[name] = {int(client): value for client, value in fields[name].items()}
        delays = {name: value.numpy() for name, value in _group(tensors, "delays").items()}
        tables = {client: _group(values, "table") for client, values in clients.items()}
        return cls(
            **fields
            | {
                "server": _group(tensors, "server"),
                "start": tensors["start"],
                "delays": DelayMeter.restored(delays),
                "rows": {client: _group(values, "row") for client, values in clients.items()},
                "table": {client: table for client, table in tables.items() if table},
                "norms": RecentNorms(**fields["norms"]),
                "sent": Traffic(**fields["sent"]),
            }
        )


def _group(tensors: Mapping[str, Tensor], group: str) -> dict[str, Tensor]:
    """The tensors whose names begin with the group's, without it."""
    prefix = f"{group}."
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
