"""The durable state of a deployment's server."""

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, from_numpy, int64, stack, tensor, zeros

from ...algorithms import Message, State, Traffic
from ...participation import DelayMeter


class Merged(NamedTuple):
    """What the server merged last from a client."""

    step: int
    version: str
    """the id of the client's state after this step"""


@dataclass
class ServerState:
    """Everything that must survive the server process. It is in the checkpoint before the next order is sent."""

    server: State
    """the algorithm's server state; vectors are float64, except x"""
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
    serial: int = 0
    """of the orders; increases with every attempt at a round, and beyond any serial that a client has seen"""
    attempts: int = 0
    """attempts at rounds so far"""
    on_loss: str = "reset"
    """the rule under which this state was made; a table cannot be added later"""
    last: dict[int, Merged] = field(default_factory=dict)
    """what was merged last from each client in this epoch"""
    rows: dict[int, State] = field(default_factory=dict)
    """the algorithm's memory of each client"""
    table: dict[int, Message] = field(default_factory=dict)
    """with on_loss="table": the sum of each client's merged uplinks in this epoch"""
    sketches: dict[int, Tensor] = field(default_factory=dict)
    """without a table: a sketch of the sum of each client's merged uplinks in this epoch"""
    sketch_key: int = field(default_factory=lambda: secrets.randbits(62))
    """of the sketches; clients must not know it"""
    first_norms: dict[int, float] = field(default_factory=dict)
    """the norm of each client's first contribution, in any epoch"""
    losses: dict[int, int] = field(default_factory=dict)
    """how often each client has lost its state"""
    outliers: dict[int, int] = field(default_factory=dict)
    """how many uplinks of each client were beyond the bound"""
    strikes: dict[int, list[int]] = field(default_factory=dict)
    """the attempts at which each client got a strike, while they count"""
    evicted: list[int] = field(default_factory=list)
    """the clients that the operator has excluded"""
    sent: Traffic = field(default_factory=Traffic)
    """messages sent and received so far"""
    seconds: float = 0.0
    """duration of the rounds done"""
    evaluated: int = -1
    """rounds done at the last evaluation; -1: none yet"""

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint, without those that have a file per client."""
        delays = {f"delays.{name}": from_numpy(values) for name, values in self.delays.state().items()}
        clients = sorted(self.sketches)
        values = stack([self.sketches[client] for client in clients]) if clients else zeros(0, 0)
        sketches = {"sketches.clients": tensor(clients, dtype=int64), "sketches.values": values}
        server = {f"server.{name}": value for name, value in self.server.items()}
        return server | {"start": self.start} | delays | sketches

    def numbers(self) -> dict[str, Any]:
        """The rest of a checkpoint, as JSON can hold it."""
        return {
            "job": self.job,
            "epoch": self.epoch,
            "first_round": self.first_round,
            "t": self.t,
            "serial": self.serial,
            "attempts": self.attempts,
            "on_loss": self.on_loss,
            "last": self.last,
            "sketch_key": self.sketch_key,
            "first_norms": self.first_norms,
            "losses": self.losses,
            "outliers": self.outliers,
            "strikes": self.strikes,
            "evicted": self.evicted,
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
        for name in ("last", "first_norms", "losses", "outliers", "strikes"):  # JSON turns the keys into strings
            fields[name] = {int(client): value for client, value in fields[name].items()}
        fields["last"] = {client: Merged(*merged) for client, merged in fields["last"].items()}
        delays = {name: value.numpy() for name, value in _group(tensors, "delays").items()}
        sketches = _group(tensors, "sketches")
        tables = {client: _group(values, "table") for client, values in clients.items()}
        return cls(
            **fields
            | {
                "server": _group(tensors, "server"),
                "start": tensors["start"],
                "delays": DelayMeter.restored(delays),
                "rows": {client: _group(values, "row") for client, values in clients.items()},
                "table": {client: table for client, table in tables.items() if table},
                "sketches": dict(zip(sketches["clients"].tolist(), sketches["values"], strict=True)),
                "sent": Traffic(**fields["sent"]),
            }
        )


def _group(tensors: Mapping[str, Tensor], group: str) -> dict[str, Tensor]:
    """The tensors whose names begin with the group's, without it."""
    prefix = f"{group}."
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
