"""A run's folder: who may write to it, and what is in it."""

import csv
import fcntl
import io
import os
import platform
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from ..base.checks import InputError, short
from ..base.files import flush, sweep_up, written_whole
from ..training.options import HOW
from . import checkpoint, recipes, tensorfile
from .checkpoint import RunState, Snapshot
from .config import ENVIRONMENT
from .csv_rows import cut_back
from .recipes import Table
from .tensorfile import Entry

CONFIG, METRICS, STATUS, LOG, MODEL = "config.toml", "metrics.csv", "status.toml", "log", "model.safetensors"
LOCK = ".lock"
_PATIENCE = 5.0
"""seconds to wait for a process that is about to let go of a folder"""


class RunFolder:
    """The folder of one run, held by one process until it is closed."""

    def __init__(self, path: str | Path, patience: float | None = None) -> None:
        self.path = Path(path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock: IO[str] = (self.path / LOCK).open("a+")
        except OSError as error:
            accepted = f"a folder that can be made and written to ({error.strerror})"
            raise InputError("folder", str(path), accepted) from error
        self._hold(_PATIENCE if patience is None else patience)
        sweep_up(self.path)
        self._columns: list[str] = []

    def _hold(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    self._lock.seek(0)
                    holder = self._lock.read().strip() or "unknown"
                    self._lock.close()
                    accepted = f"another process writes to it ({holder}); wait for it, or take another folder"
                    raise InputError("folder", str(self.path), accepted) from None
                time.sleep(0.1)
        self._lock.seek(0)
        self._lock.truncate()
        self._lock.write(f"process {os.getpid()} on {platform.node()}")
        self._lock.flush()

    def close(self) -> None:
        self._lock.close()

    # The config.

    def claim(self, config: Table, device: torch.device) -> None:
        """Begins a run with this config here, or makes sure that the one here has the same."""
        path = self.path / CONFIG
        if path.exists():
            recorded = read_toml(path)
            refuse_difference(recorded, config, self.path)
            before, now = recorded.get(ENVIRONMENT, {}), environment(device)
            changed = [f"{k} {before.get(k)} -> {v}" for k, v in now.items() if k in _NOTED and before.get(k) != v]
            if changed:
                self.log(f"resumed elsewhere, where bits may differ: {', '.join(changed)}")
            return
        strange = [found.name for found in self.path.iterdir() if found.name not in (LOCK, LOG, STATUS)]
        if strange:
            accepted = f"an empty folder, or a run's; it has {strange[0]} and no {CONFIG}"
            raise InputError("folder", str(self.path), accepted)
        with written_whole(path) as part:
            part.write_text(toml_text({**config, ENVIRONMENT: environment(device)}))

    # The checkpoint.

    def restore(self, state: RunState) -> None:
        """Puts the newest good checkpoint into `state`, if there is one, and cuts the metrics to it."""
        newest, previous = self.path / checkpoint.NAME, self.path / checkpoint.PREVIOUS
        for path in (newest, previous):
            if not path.exists():
                continue
            try:
                checkpoint.load(path, state)
            except ValueError as error:
                self.log(f"{path.name} cannot be used: {error}")
                if path == previous or not previous.exists():
                    accepted = f"{error}; no other checkpoint is good: delete {path.parent} to start over"
                    raise InputError("checkpoint", str(path), accepted) from error
                # Out of the way, or the next checkpoint would make it the previous one.
                path.replace(path.with_name("checkpoint.broken.safetensors"))
                continue
            self.log(f"resumed after round {state.done} from {path.name}")
            break
        self._rewrite_metrics(state.rows)

    # The metrics.

    def _rewrite_metrics(self, rows: list[dict[str, float]]) -> None:
        """What was written after the checkpoint, perhaps only half, comes again."""
        text = io.StringIO(newline="")
        if rows:
            self._columns = list(rows[0])
            csv.writer(text, lineterminator="\n").writerows([self._columns, *(self._cells(row) for row in rows)])
        with written_whole(self.path / METRICS) as part:
            part.write_text(text.getvalue())

    def cut_metrics(self, last_round: int) -> None:
        """Removes the rows after `last_round`; the next rows are appended to those that stay."""
        self._columns = cut_back(self.path / METRICS, last_round, self.log)

    def append(self, row: Mapping[str, float]) -> None:
        """Adds one evaluation."""
        lines = [] if self._columns else [list(row)]
        self._columns = self._columns or list(row)
        try:
            with (self.path / METRICS).open("a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([*lines, self._cells(row)])
        except OSError as error:
            reason = f"the metrics could not be written ({error.strerror}); the last checkpoint is kept"
            raise OSError(f"{reason}: make room, then go on with: fedsum resume {self.path}") from error

    def _cells(self, row: Mapping[str, float]) -> list[str]:
        new = [name for name in row if name not in self._columns]
        if new:
            raise InputError("evaluate", new[0], f"the same names every time: {', '.join(self._columns)}")
        return [repr(row[name]) if name in row else "" for name in self._columns]

    # Where it stands.

    def set_status(self, state: str, round: int, reason: str = "", *, safe: bool = True) -> None:
        """`safe` waits for the disk; what is only for watching does not."""
        table = {"state": state, "round": round, "reason": reason, "updated": _now()}
        if safe:
            with written_whole(self.path / STATUS) as part:
                part.write_text(toml_text(table))
        else:
            part = self.path / f".{STATUS}.part"
            part.write_text(toml_text(table))
            part.replace(self.path / STATUS)

    def log(self, line: str) -> None:
        with (self.path / LOG).open("a") as file:
            file.write(f"{_now()} {line}\n")

    def save_model(self, model: Any) -> None:
        """A module by the names of its parameters, a plain vector as `x`."""
        tensors = model.state_dict() if isinstance(model, torch.nn.Module) else {"x": torch.as_tensor(model)}
        with written_whole(self.path / MODEL) as part:
            tensorfile.write(part, {k: Entry.of(v.detach().cpu()) for k, v in tensors.items()}, {"format": "pt"})

    def save(self, snapshot: Snapshot) -> None:
        """Writes a checkpoint: its metrics are on the disk before it is."""
        flush(self.path / METRICS)
        snapshot.write(self.path)


_NOTED = ("fedsum", "torch", "numpy", "device")


def environment(device: torch.device) -> Table:
    """Versions, device, git state and command: what a result may depend on besides its config."""
    from .. import __version__

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    found = {
        "fedsum": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": name,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "started": _now(),
    }
    git = _git_state(Path(__file__).parents[1])
    return found | ({"git": git} if git else {})


def _git_state(source: Path) -> str:
    """The commit of the source, and whether anything in it was changed since; nothing where there is no git."""

    def ask(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(source), *words], capture_output=True, text=True, timeout=10
        ).stdout.strip()

    try:
        commit = ask("rev-parse", "--short=12", "HEAD")
        return commit + (" changed" if commit and ask("status", "--porcelain", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def toml_text(table: Table) -> str:
    import tomli_w

    return tomli_w.dumps(table)


def read_toml(path: Path) -> Table:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError("file", str(path), f"a TOML file as fedsum wrote it ({error})") from error


def refuse_difference(recorded: Table, config: Table, folder: Path) -> None:
    """An InputError that names the first setting in which two configs differ."""
    before, now = (_flat({k: v for k, v in each.items() if k not in _NOT_COMPARED}) for each in (recorded, config))
    if "schedule.sha256" in before and "schedule.sha256" in now:
        before["schedule.path"] = now["schedule.path"] = ""  # a trace may move, if it stays the same
    for key in [*now, *before]:
        if before.get(key) != now.get(key):
            _refuse(key, before.get(key), now.get(key), folder)
    different = recipes.first_difference(recorded["eta_l"], config["eta_l"], config["rounds"])
    if different:
        _refuse(*different, folder)


_NOT_COMPARED = (*HOW, ENVIRONMENT, "eta_l")
"""what changes no result; rates are compared by their values"""


def _refuse(key: str, before: Any, now: Any, folder: Path) -> None:
    raise InputError(key, now, f"the run in {folder} has {short(before)}; go on with that, or take another folder")


def _flat(table: Mapping[str, Any], prefix: str = "") -> Table:
    flat: Table = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
