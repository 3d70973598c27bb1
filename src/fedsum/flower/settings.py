"""An app's configuration, [tool.flwr.app.config] in its pyproject.toml, as what the two apps need."""

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
    """Every field may be set in the file or by `flwr run --run-config`, with hyphens for underscores.

    An app's own settings go into tables of their own, which are left alone.
    """

    clients: int
    """N, fixed: absent clients count"""
    rounds: int
    """T"""
    local_steps: int
    """K"""
    eta_l: float
    """local learning rate"""
    eta_g: float = 1.0
    """global learning rate"""
    eta_decay: float = 0.0
    """if not 0: eta_l(t) = eta_l / sqrt(t / eta_decay + 1); the paper has 10"""
    batch_size: int = 128
    seed: int = 0
    eval_every: int = 10
    folder: str = "fedsum-run"
    """the run folder on the server's machine; a run is taken up again where it is"""
    deadline: float = 60.0
    """seconds of a round"""
    quorum: int = 1
    """fewer replies are not merged"""
    on_loss: str = "reset"
    """what to do when a client has lost its state: "reset" or "table" """
    norm_limit: float = 25.0
    """refuse an uplink whose norm is more than this many times the median; 0: never"""
    client_keys: str = ""
    """a file with the clients' public keys, as `fedsum flower certs` writes; empty: clients say who they are"""
    trace: str = ""
    """a .csv of round,client that says who is to take part; empty: the schedule below, or whoever is online"""
    algorithm: Algorithm = field(default_factory=lambda: ALGORITHMS["FedSUM"]())
    """table [algorithm]: name, and its fields"""
    schedule: Mapping[str, Any] = field(default_factory=dict)
    """table [schedule]: name, and its fields; no name: whoever is online"""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> "Settings":
        """From Flower's flat configuration, in which [algorithm] name is "algorithm.name"."""
        tables: dict[str, dict[str, Any]] = {"algorithm": {}, "schedule": {}}
        plain: dict[str, Any] = {}
        known = [f.name for f in dataclasses.fields(cls) if f.name not in tables]
        for key, value in config.items():
            table, dot, name = key.partition(".")
            if dot and table in tables:
                tables[table][name.replace("-", "_")] = value
            elif dot:
                continue  # a table of the app's own, for its task
            elif key.replace("-", "_") in known:
                plain[key.replace("-", "_")] = value
            else:
                raise InputError(key, value, f"no such setting; {nearest(key, [k.replace('_', '-') for k in known])}")
        for name in ("clients", "rounds", "local_steps", "eta_l"):
            if name not in plain:
                raise InputError(name.replace("_", "-"), None, "is required in [tool.flwr.app.config]")
        if name := tables["algorithm"].pop("name", ""):
            plain["algorithm"] = build("algorithm", ALGORITHMS, name, tables["algorithm"])
        return cls(**plain, schedule=tables["schedule"])

    def made_schedule(self) -> Schedule | None:
        """Asked for by the server only: a trace lies on its machine."""
        if self.trace:
            return Trace.read(self.trace, clients=self.clients)
        fields = dict(self.schedule)
        name = fields.pop("name", "")
        return build("schedule", SCHEDULES, name, {"n": self.clients, **fields}) if name else None

    def rate(self, t: int) -> float:
        """eta_l of round t."""
        return self.eta_l / (t / self.eta_decay + 1) ** 0.5 if self.eta_decay else self.eta_l

    def keys(self) -> dict[bytes, int] | None:
        """The client of each public key, if there is a file of them."""
        if not self.client_keys:
            return None
        path = Path(self.client_keys)
        try:
            listed = tomllib.loads(path.read_text(encoding="utf-8"))["clients"]
            keys = {_pem(key): int(client) for client, key in listed.items()}
        except (OSError, KeyError, ValueError, AttributeError, UnsupportedAlgorithm) as error:
            accepted = f"a file with a table [clients] of id = public key, as in a .pub file ({error})"
            raise InputError("client-keys", str(path), accepted) from None
        for client in keys.values():
            if not 0 <= client < self.clients:
                raise InputError("client-keys", client, f"ids from 0 to {self.clients - 1}")
        return keys


def _pem(key: str) -> bytes:
    """A public key as the SuperLink lists it."""
    return load_ssh_public_key(key.strip().encode()).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
