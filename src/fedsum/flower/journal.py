"""The server's run folder: a checkpoint before every send, metrics, participation, log and status."""

import csv
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..base.checks import InputError
from ..base.files import delete_partial_files, flush
from ..base.toml_values import Table
from ..runs import CHECKPOINT, CONFIG, METRICS, STATUS, Run, RunFolder, truncate_after
from ..spec import DEPLOYMENT, dump_algorithm, first_difference
from .deployment import FREE_RULES
from .protocol import Ledger, ServerState
from .storage import CLIENTS, PARTICIPATION, Checkpoints

LOCK_PATIENCE = 15.0
"""seconds to wait for the folder's lock: a server app that was just killed may still hold it"""
_RESULT_OPTIONS = ("rounds", "local_steps", "eta_l", "eta_g", "batch_size", "clip_norm", "weight_decay", "seed")
"""`rounds` may change, but rates are compared over the rounds that both runs have"""
# Settings that may change when a run is resumed: they affect neither finished rounds nor client states.
_FREE = ("rounds", "schedule", "eval_every", "eval_last", *(f"{DEPLOYMENT}.{name}" for name in FREE_RULES))


class Journal:
    """A run folder that one server app at a time writes to. A run can be resumed after a kill at any instant.

    The state is in the checkpoint. The table and the rows of each client are in a file per client, so that the cost of
    a checkpoint is proportional to the clients that took part. If the checkpoint is damaged, the previous one is used.
    metrics.csv and participation.csv are outputs: on resume, rows that are newer than the checkpoint and unreadable
    lines are removed, and nothing else is read from them.
    """

    def __init__(self, folder: str | Path) -> None:
        self._run = RunFolder(folder, patience=LOCK_PATIENCE)
        self.folder = self._run.path
        self.log, self.set_status, self.close = self._run.log, self._run.set_status, self._run.close
        self.append_metrics = self._run.append
        delete_partial_files(self.folder / CLIENTS)
        self._checkpoints = Checkpoints(self.folder)

    @contextmanager
    def refusals_logged(self) -> Iterator[None]:
        """Writes an InputError to the run's log and status too: Flower shows it in the output of `flwr log` only."""
        try:
            yield
        except InputError as error:
            # The folder may not be a run's.
            if any((self.folder / name).exists() for name in (CONFIG, CHECKPOINT)):
                self.log(f"refused to start: {error}")
            if (self.folder / STATUS).exists():
                run = Run.read(self.folder)
                self.set_status(run.state, run.round, f"refused to start: {error}")
            raise

    def resume(self, ledger: Ledger) -> dict[str, Any] | None:
        """Restores the ledger's state from the newest intact checkpoint.

        Returns:
          The recorded `Attendance.dump()`, or None if the folder has no run yet.
        """
        loaded = self._checkpoints.load(self.log)
        if loaded is None:
            return None
        state, header = loaded
        difference = first_difference(header.identity, _identity(ledger), free=("rounds",))
        if difference:
            field, saved, value = difference
            accepted = f"holds a run with {field} {saved!r}, not {value!r}; use the same value, or another folder"
            raise InputError("folder", str(self.folder), accepted)
        ledger.restore(state)
        self._cut_participation(state)
        self._run.cut_metrics(state.evaluated)
        return header.attendance

    def save(self, ledger: Ledger, changed: Collection[int], attendance: dict[str, Any] | None = None) -> None:
        """Writes a checkpoint, which is on disk on return. `changed`: clients merged since the last checkpoint."""
        for name in (METRICS, PARTICIPATION):  # rows must be on disk before a checkpoint counts them
            if (self.folder / name).exists():
                flush(self.folder / name)
        self._checkpoints.save(ledger.state, _identity(ledger), attendance or {}, changed)

    def append_participation(self, t: int, clients: Collection[int]) -> None:
        """Adds the clients that were merged in round t."""
        path = self.folder / PARTICIPATION
        rows = [[t, client] for client in clients]
        with path.open("a", newline="", encoding="utf-8") as file:
            header = [] if file.tell() else [["round", "client"]]
            csv.writer(file, lineterminator="\n").writerows([*header, *rows])

    def _cut_participation(self, state: ServerState) -> None:
        """Removes the rows that are newer than the checkpoint. Warns if rows of earlier rounds are missing."""
        path = self.folder / PARTICIPATION
        columns = truncate_after(path, state.t - 1, self.log, integers=("round", "client"))
        rows = len(path.read_bytes().splitlines()) - 1 if columns else 0
        expected = int(state.delays.counts.sum())
        if rows < expected:
            self.log(f"{PARTICIPATION} lacks {expected - rows} of the {expected} rows of the rounds done")

    def claim(self, config: Table) -> None:
        """Begins a run with this config in the folder, or checks that the folder's run has the same config."""
        import flwr

        self._run.claim(config, torch.device("cpu"), free=_FREE, more={"flwr": flwr.__version__})


def _identity(ledger: Ledger) -> Table:
    """The settings that change results. A resumed run must share them with the run in the folder."""
    options, start = ledger.options, ledger.state.start
    run = {name: value for name, value in options.dump().items() if name in _RESULT_OPTIONS}
    return {
        **run,
        "algorithm": dump_algorithm(ledger.algorithm, options.rounds),
        "clients": ledger.n,
        "parameters": len(start),
        "dtype": str(start.dtype).removeprefix("torch."),
        "on_loss": ledger.rules.on_loss,
    }
