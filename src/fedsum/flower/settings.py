"""The settings of a deployment, read from [tool.flwr.app.config] in the app's pyproject.toml."""

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

from ..algorithms import ALGORITHMS, Algorithm
from ..base.checks import InputError, nearest
from ..base.registry import build
from ..participation import SCHEDULES, Schedule, Trace


@dataclass(frozen=True)
class Settings:
    """Each field is a key in the file and in `flwr run --run-config`, with hyphens for underscores.

    Tables other than [algorithm] and [schedule] belong to the app and are ignored here.
    """

    clients: int
    """N, all clients, online or not; it stays fixed"""
    rounds: int
    """T"""
    local_steps: int
    """K"""
    eta_l: float
    """local learning rate"""
    eta_g: float = 1.0
    """global learning rate"""
    eta_decay: float = 0.0
    """if not 0: eta_l(t) = eta_l / sqrt(t / eta_decay + 1); the paper uses 10"""
    batch_size: int = 128
    seed: int = 0
    eval_every: int = 10
    folder: str = "fedsum-run"
    """the run folder on the server's machine; a run that is already there is resumed"""
    deadline: float = 60.0
    """seconds per round"""
    quorum: int = 1
    """replies needed to merge a round"""
    on_loss: str = "reset"
    """what to do when a client has lost its state: "reset" or "table" (see `Ledger`)"""
    norm_limit: float = 25.0
    """largest norm of an uplink, as a multiple of the median; 0: no limit"""
    client_keys: str = ""
    """the file of clients' public keys that `fedsum flower certs` writes; empty: SuperNodes name their client"""
    trace: str = ""
    """a .csv of round,client: the active clients per round; empty: the schedule, or all clients that are online"""
    algorithm: Algorithm = field(default_factory=lambda: ALGORITHMS["FedSUM"]())
    """table [algorithm]: its name and fields"""
    schedule: Mapping[str, Any] = field(default_factory=dict)
    """table [schedule]: its name and fields; without a name: all clients that are online"""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> "Settings":
        """Reads Flower's flat configuration, in which the key `name` of [algorithm] is "algorithm.name"."""
        tables: dict[str, dict[str, Any]] = {"algorithm": {}, "schedule": {}}
        plain: dict[str, Any] = {}
        names = [f.name for f in dataclasses.fields(cls) if f.name not in tables]
        for key, value in config.items():
            table, dot, name = key.partition(".")
            if dot and table in tables:
                tables[table][name.replace("-", "_")] = value
            elif dot:
                continue  # a table of the app
            elif key.replace("-", "_") in names:
                plain[key.replace("-", "_")] = value
            else:
                raise InputError(key, value, f"no such setting; {nearest(key, [k.replace('_', '-') for k in names])}")
        for name in ("clients", "rounds", "local_steps", "eta_l"):
            if name not in plain:
                raise InputError(name.replace("_", "-"), None, "is required in [tool.flwr.app.config]")
        if name := tables["algorithm"].pop("name", ""):
            plain["algorithm"] = build("algorithm", ALGORITHMS, name, tables["algorithm"])
        return cls(**plain, schedule=tables["schedule"])

    def build_schedule(self) -> Schedule | None:
        """The schedule, if one is configured. Called on the server only, where the trace is."""
        if self.trace:
            return Trace.read(self.trace, clients=self.clients)
        fields = dict(self.schedule)
        name = fields.pop("name", "")
        return build("schedule", SCHEDULES, name, {"n": self.clients, **fields}) if name else None

    def rate(self, t: int) -> float:
        """eta_l of round t."""
        return self.eta_l / (t / self.eta_decay + 1) ** 0.5 if self.eta_decay else self.eta_l

    def keys(self) -> dict[bytes, int] | None:
        """The client of each public key, if `client_keys` names a file."""
        if not self.client_keys:
            return None
        path = Path(self.client_keys)
        try:
            public_keys = tomllib.loads(path.read_text(encoding="utf-8"))["clients"]
            keys = {_pem(key): int(client) for client, key in public_keys.items()}
        except (OSError, KeyError, ValueError, AttributeError, UnsupportedAlgorithm) as error:
            accepted = f"a file with a table [clients] of id = public key, as in a .pub file ({error})"
            raise InputError("client-keys", str(path), accepted) from None
        for client in keys.values():
            if not 0 <= client < self.clients:
                raise InputError("client-keys", client, f"ids from 0 to {self.clients - 1}")
        return keys


def _pem(key: str) -> bytes:
    """An OpenSSH public key in the form that the SuperLink reports."""
    return load_ssh_public_key(key.strip().encode()).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
