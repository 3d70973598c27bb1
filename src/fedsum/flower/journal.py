"""The server's run folder: a checkpoint before every send, metrics, who took part, and what was said."""

import csv
import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..algorithms import Message, State, Traffic
from ..base.checks import InputError
from ..base.files import sweep_up, written_whole
from ..participation import DelayMeter
from ..runs.folder import RunFolder, toml_text
from .ledger import Ledger, ServerState

_PATIENCE_S = 15.0
"""how long a server app that was killed may take to let go of its folder"""


class Journal:
    """A folder that one server app at a time writes to. Killed at any instant, it can be taken up again.

    The memory of each client lies in a file of its own, so that a checkpoint costs what took part.
    """

    def __init__(self, folder: str | Path, n: int) -> None:
        self.folder = Path(folder)
        self._held = RunFolder(folder, patience=_PATIENCE_S)
        self.note, self.status, self.close = self._held.log, self._held.set_status, self._held.close
        (self.folder / "clients").mkdir(exist_ok=True)
        sweep_up(self.folder / "clients")
        self.meter = DelayMeter(n)
        self.sent = Traffic()
        self.seconds = 0.0
        self.judged = -1  # the round of the last row of metrics
        self._files: dict[int, str] = {}

    def resume(self, ledger: Ledger) -> bool:
        """Puts the ledger where the last checkpoint was, if there is one."""
        path = self.folder / "checkpoint.safetensors"
        if not path.is_file():
            return False
        with safe_open(path, framework="pt") as file:
            told: dict[str, Any] = json.loads(file.metadata()["fedsum"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # not a mapping
        for field, here in _identity(ledger).items():
            if told["identity"][field] != here:
                raise InputError("folder", str(self.folder), f"holds a run with {field} {told['identity'][field]!r}")
        state = told["state"]
        for name in ("last", "losses"):
            state[name] = {int(client): value for client, value in state[name].items()}
        ledger.state = ServerState(server=_part(tensors, "server"), start=tensors["start"], **state)
        self._files = {int(client): name for client, name in told["files"].items()}
        for client, name in self._files.items():
            with safe_open(self.folder / "clients" / name, framework="pt") as file:
                kept = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            ledger.state.rows[client] = _part(kept, "row")
            if table := _part(kept, "table"):
                ledger.state.table[client] = table
        for left in (self.folder / "clients").iterdir():  # by a server killed right after a checkpoint, or before
            if left.name not in self._files.values():
                left.unlink()
        ledger.validator.recall(told["door"])
        self.sent, self.seconds = Traffic(**told["sent"]), told["seconds"]
        self._cut_back(ledger.state.t)
        return True

    def save(self, ledger: Ledger, changed: Collection[int]) -> None:
        """A checkpoint, on the disk when this returns; `changed` are the clients merged since the last."""
        state = ledger.state
        old, self._files = self._files, {c: f for c, f in self._files.items() if c in state.last or c in state.table}
        for client in changed:
            kept = {f"row.{name}": value for name, value in state.rows.get(client, {}).items()}
            kept |= {f"table.{name}": value for name, value in state.table.get(client, {}).items()}
            if kept:
                self._files[client] = f"{client}-{state.epoch}-{state.t}.safetensors"
                with written_whole(self.folder / "clients" / self._files[client]) as part:
                    save_file(_own(kept), part)
        told = {
            "identity": _identity(ledger),
            "state": {k: getattr(state, k) for k in ("job", "epoch", "begun", "t", "last", "losses")},
            "files": self._files,
            "door": ledger.validator.memory(),
            "sent": {"vectors": self.sent.vectors, "bytes": self.sent.bytes},
            "seconds": self.seconds,
        }
        tensors = {f"server.{name}": value for name, value in state.server.items()} | {"start": state.start}
        with written_whole(self.folder / "checkpoint.safetensors") as part:
            save_file(_own(tensors), part, {"fedsum": json.dumps(told)})
        for name in set(old.values()) - set(self._files.values()):
            (self.folder / "clients" / name).unlink(missing_ok=True)

    def took_part(self, t: int, clients: Collection[int]) -> int:
        """Writes down who was merged in round t, and returns tau."""
        _append(self.folder / "participation.csv", ["round", "client"], [[t, client] for client in clients])
        return self.meter.update(np.array(sorted(clients), dtype=np.int64))

    def evaluated(self, row: dict[str, float]) -> None:
        self.judged = int(row["round"])
        _append(self.folder / "metrics.csv", list(row), [list(row.values())])

    def configured(self, config: dict[str, Any]) -> None:
        with written_whole(self.folder / "config.toml") as part:
            part.write_text(toml_text(config), encoding="utf-8")

    def _cut_back(self, t: int) -> None:
        """Rows that were written after the checkpoint are of a round that never was."""
        sets: list[list[int]] = [[] for _ in range(t)]
        rows = [row for row in _rows(self.folder / "participation.csv") if int(row["round"]) < t]
        for row in rows:
            sets[int(row["round"])].append(int(row["client"]))
        for clients in sets:
            self.meter.update(np.array(sorted(clients), dtype=np.int64))
        _rewrite(self.folder / "participation.csv", rows)
        judged = [row for row in _rows(self.folder / "metrics.csv") if int(row["round"]) <= t]
        self.judged = max((int(row["round"]) for row in judged), default=-1)
        _rewrite(self.folder / "metrics.csv", judged)


def _identity(ledger: Ledger) -> dict[str, Any]:
    """What may not change when a run is taken up again."""
    size, dtype = len(ledger.state.start), str(ledger.state.start.dtype)
    return {"algorithm": repr(ledger.algorithm), "clients": ledger.n, "parameters": size, "dtype": dtype}


def _own(tensors: State) -> State:
    return {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}


def _part(tensors: dict[str, Tensor], kind: str) -> Message:
    return {key.removeprefix(f"{kind}."): value for key, value in tensors.items() if key.startswith(f"{kind}.")}


def _append(path: Path, head: list[str], rows: list[list[Any]]) -> None:
    new = not path.exists() or not path.stat().st_size
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([head, *rows] if new else rows)
        file.flush()
        os.fsync(file.fileno())


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        # A last line that was cut off when the server was killed has fields missing.
        return [row for row in csv.DictReader(file) if None not in row.values()]


def _rewrite(path: Path, rows: list[dict[str, str]]) -> None:
    if not path.exists():
        return
    with path.open(newline="", encoding="utf-8") as file:
        head = next(csv.reader(file), [])
    with written_whole(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, head, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
