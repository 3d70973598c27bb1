"""The state of a run."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..algorithms import State, Traffic
from ..engine import StateBank
from ..participation import DelayMeter
from .outstanding import Outstanding

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class RunState:
    """The state of a run between two rounds; a checkpoint holds all of it."""

    server: State
    clients: StateBank
    """the state of each client"""
    memory: StateBank
    """the server's memory of each client"""
    meter: DelayMeter
    outstanding: Outstanding = field(default_factory=Outstanding)
    """in asynchronous training: what the clients at work were sent"""
    sent: Traffic = field(default_factory=Traffic)
    rows: list[dict[str, float]] = field(default_factory=list)
    """one row per evaluation"""
    served: "pd.DataFrame | None" = None
    """with `per_client`: the clients' scores at the last evaluation; not in checkpoints, which hold the model"""
    time: float = 0.0
    """with devices: simulated seconds"""
    late: int = 0
    """with `devices`: how often a client was late, and its work lost"""
    engine: str | None = None
    """the engine that trains the clients; a resumed run with `engine="auto"` keeps it"""
    training_seconds: float = 0.0
    evaluation_seconds: float = 0.0

    @property
    def done(self) -> int:
        """Rounds done."""
        return len(self.meter.tau)
