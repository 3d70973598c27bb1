"""The server's run folder: a checkpoint before every send, metrics, participation, log and status."""

import csv
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..base.checks import InputError
from ..base.files import delete_partial_files, flush, written_whole
from ..base.toml_values import Table
from ..runs import CHECKPOINT, METRICS, RunFolder, truncate_after
from ..spec import DEPLOYMENT, dump_algorithm
from .deployment import FREE_RULES
from .ledger import Ledger
from .server_state import ServerState

PARTICIPATION, CLIENTS = "participation.csv", "clients"
LOCK_PATIENCE = 15.0
"""seconds to wait for the folder's lock: a server app that was just killed may still hold it"""
_FORMAT = 3
"""version of the checkpoint format; increased when older checkpoints cannot be resumed"""


# Settings that may change when a run is resumed: they affect neither finished rounds nor client states.
_FREE = ("rounds", "schedule", "eval_every", "eval_last", *(f"{DEPLOYMENT}.{name}" for name in FREE_RULES))


class Journal:
    """A run folder that one server app at a time writes to. A run can be resumed after a kill at any instant.

    The state is in the checkpoint. The table and the rows of each client are in a file per client, so that the cost of
    a checkpoint is proportional to the clients that took part. metrics.csv and participation.csv are outputs: on
    resume, rows that are newer than the checkpoint are removed, and nothing is read from them.
    """

    def __init__(self, folder: str | Path) -> None:
        self._run = RunFolder(folder, patience=LOCK_PATIENCE)
        self.folder = self._run.path
        self.log, self.set_status, self.close = self._run.log, self._run.set_status, self._run.close
        self.append_metrics = self._run.append
        delete_partial_files(self.folder / CLIENTS)
        self._client_files: dict[int, str] = {}

    def resume(self, ledger: Ledger) -> bool:
        """Restores the ledger's state from the checkpoint. Returns False if there is none."""
        path = self.folder / CHECKPOINT
        if not path.is_file():
            return False
        with safe_open(path, framework="pt") as file:
            header: dict[str, Any] = json.loads(file.metadata()["fedsum"])
        if header.get("format") != _FORMAT:
            raise InputError("folder", str(self.folder), "holds a checkpoint of another fedsum version")
        for field, value in _identity(ledger).items():
            saved = header["identity"][field]
            if saved != value:
                raise InputError("folder", str(self.folder), f"holds a run with {field} {saved!r}, not {value!r}")
        self._client_files = {int(client): name for client, name in header["files"].items()}
        clients = {client: _load(self.folder / CLIENTS / name) for client, name in self._client_files.items()}
        state = ServerState.restored(_load(path), header["state"], clients)
        ledger.restore(state)
        for file_path in (self.folder / CLIENTS).iterdir():  # a server killed during a checkpoint leaves unused files
            if file_path.name not in self._client_files.values():
                file_path.unlink()
        truncate_after(self.folder / PARTICIPATION, state.t - 1, self.log, integers=("round", "client"))
        self._run.cut_metrics(state.evaluated)
        return True

    def save(self, ledger: Ledger, changed: Collection[int]) -> None:
        """Writes a checkpoint, which is on disk on return. `changed`: clients merged since the last checkpoint."""
        state = ledger.state
        (self.folder / CLIENTS).mkdir(exist_ok=True)
        old_files = set(self._client_files.values())
        self._client_files = {
            client: name for client, name in self._client_files.items() if client in state.last or client in state.table
        }
        for client in changed:
            tensors = state.client_tensors(client)
            if tensors:
                self._client_files[client] = f"{client}-{state.epoch}-{state.t}.safetensors"
                with written_whole(self.folder / CLIENTS / self._client_files[client]) as part:
                    save_file(_copies(tensors), part)
        for name in (METRICS, PARTICIPATION):  # rows must be on disk before a checkpoint counts them
            if (self.folder / name).exists():
                flush(self.folder / name)
        header = {
            "format": _FORMAT,
            "identity": _identity(ledger),
            "state": state.numbers(),
            "files": self._client_files,
        }
        with written_whole(self.folder / CHECKPOINT) as part:
            save_file(_copies(state.tensors()), part, {"fedsum": json.dumps(header)})
        for name in old_files - set(self._client_files.values()):
            (self.folder / CLIENTS / name).unlink(missing_ok=True)

    def append_participation(self, t: int, clients: Collection[int]) -> None:
        """Adds the clients that were merged in round t."""
        path = self.folder / PARTICIPATION
        rows = [[t, client] for client in clients]
        with path.open("a", newline="", encoding="utf-8") as file:
            header = [] if file.tell() else [["round", "client"]]
            csv.writer(file, lineterminator="\n").writerows([*header, *rows])

    def claim(self, config: Table) -> None:
        """Begins a run with this config in the folder, or checks that the folder's run has the same config."""
        import flwr

        self._run.claim(config, torch.device("cpu"), free=_FREE, more={"flwr": flwr.__version__})


def _identity(ledger: Ledger) -> dict[str, Any]:
    """The properties that a resumed run and the run in the folder must share."""
    start = ledger.state.start
    return {
        "algorithm": dump_algorithm(ledger.algorithm, rounds=1),
        "clients": ledger.n,
        "parameters": len(start),
        "dtype": str(start.dtype),
        "on_loss": ledger.rules.on_loss,
    }


def _load(path: Path) -> dict[str, Tensor]:
    with safe_open(path, framework="pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # not a mapping


def _copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    # safetensors refuses tensors that share memory.
    return {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
