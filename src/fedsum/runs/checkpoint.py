"""The whole state of a run, and the one file it is kept in."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..algorithms import State, Traffic
from ..base.files import flush, written_whole
from ..engine import FrozenBank, StateBank
from ..participation import DelayMeter
from . import tensorfile
from .tensorfile import Entry

NAME = "checkpoint.safetensors"
PREVIOUS = "checkpoint.previous.safetensors"
_FORMAT = "fedsum checkpoint 1"
_ROWS_AT_ONCE = 64


@dataclass
class RunState:
    """Everything that changes while a run goes on."""

    server: State
    clients: StateBank
    """the state of each client"""
    memory: StateBank
    """what the server remembers of each client"""
    meter: DelayMeter
    sent: Traffic = field(default_factory=Traffic)
    rows: list[dict[str, float]] = field(default_factory=list)
    """one for each evaluation"""
    training: float = 0.0
    """seconds of training"""
    judging: float = 0.0
    """seconds of evaluation"""

    @property
    def done(self) -> int:
        """Rounds done."""
        return len(self.meter.tau)


class Snapshot:
    """A run's state as it was, ready to be written while the run goes on."""

    def __init__(self, state: RunState) -> None:
        self.round = state.done
        self._banks = {"clients": state.clients.freeze(), "memory": state.memory.freeze()}
        # Cloned: what is small costs nothing, and no algorithm has to promise to leave its tensors alone.
        self._server = {name: value.detach().to("cpu", copy=True) for name, value in state.server.items()}
        self._meter = {name: torch.from_numpy(value) for name, value in state.meter.state().items()}
        self._rows = bytearray(json.dumps(state.rows).encode())
        self._metadata = {
            "format": _FORMAT,
            "round": str(self.round),
            "clock": json.dumps({"training": state.training, "judging": state.judging}),
            "sent": json.dumps({"vectors": state.sent.vectors, "bytes": state.sent.bytes}),
        }

    def write(self, folder: Path) -> None:
        """Makes this the folder's checkpoint; the one before becomes the previous one."""
        path = folder / NAME
        with written_whole(path) as part:
            tensorfile.write(part, dict(self._entries()), self._metadata)
            flush(part)
            if path.exists():
                path.replace(folder / PREVIOUS)

    def release(self) -> None:
        for bank in self._banks.values():
            bank.release()

    def _entries(self) -> Iterator[tuple[str, Entry]]:
        for name, value in self._server.items():
            yield f"server.{name}", Entry.of(value)
        for kind, bank in self._banks.items():
            yield from _bank_entries(kind, bank)
        for name, value in self._meter.items():
            yield f"delays.{name}", Entry.of(value)
        yield "metrics", Entry.of(torch.frombuffer(self._rows, dtype=torch.uint8))


def _bank_entries(kind: str, bank: FrozenBank) -> Iterator[tuple[str, Entry]]:
    count = len(bank.ids)
    yield f"{kind}.ids", Entry.of(torch.tensor(bank.ids, dtype=torch.int64))
    for name, like in bank.like.items():
        yield f"{kind}.{name}", Entry(like.dtype, (count, *like.shape), bank.read(name))


def load(path: Path, state: RunState) -> None:
    """Puts a checkpoint into a state that has just begun; a ValueError says why it cannot be used."""
    from safetensors import SafetensorError, safe_open

    tensorfile.verified(path)
    try:
        with safe_open(path, framework="pt") as file:
            found = file.metadata() or {}
            if found.get("format") != _FORMAT:
                raise ValueError(f"it says {found.get('format')!r}, and {_FORMAT!r} is needed")
            state.server = {name: _like(file, f"server.{name}", value) for name, value in state.server.items()}
            for kind, bank in (("clients", state.clients), ("memory", state.memory)):
                _load_bank(file, kind, bank)
            tensors = {name: file.get_tensor(f"delays.{name}").numpy() for name in state.meter.state()}
            state.meter = DelayMeter.restored(tensors)
            state.rows = json.loads(bytes(file.get_tensor("metrics").numpy()))
            clock, sent = json.loads(found["clock"]), json.loads(found["sent"])
    except (SafetensorError, KeyError) as error:
        raise ValueError(str(error)) from error
    state.training, state.judging = clock["training"], clock["judging"]
    state.sent = Traffic(**sent)


def _load_bank(file: Any, kind: str, bank: StateBank) -> None:
    ids = file.get_tensor(f"{kind}.ids").numpy()
    parts = {name: file.get_slice(f"{kind}.{name}") for name in bank.initial}
    for first in range(0, len(ids), _ROWS_AT_ONCE):
        some = slice(first, min(first + _ROWS_AT_ONCE, len(ids)))
        rows = {name: parts[name][some].to(value) for name, value in bank.initial.items()}
        bank.scatter(np.asarray(ids[some]), rows)


def _like(file: Any, name: str, value: Tensor) -> Tensor:
    found: Tensor = file.get_tensor(name)
    # Cloned: a mapped file may be replaced or removed while the run goes on.
    return found.to(value, copy=True)
