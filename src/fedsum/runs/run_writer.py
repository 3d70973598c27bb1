"""Writes run folders. No other module does."""

import csv
import fcntl
import io
import os
import platform
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..base.checks import InputError, short
from ..base.files import delete_partial_files, flush, written_whole
from ..base.toml_values import DIGEST, Table
from ..spec import ENVIRONMENT, METRIC_DIRECTIONS, first_difference, toml_text
from . import tensorfile
from .csv_truncation import truncate_after
from .environment import LOGGED_CHANGES, environment, now
from .layout import CLIENTS, CONFIG, LOCK, LOG, METRICS, MODEL, STATUS, SWEEP_FILE

if TYPE_CHECKING:
    import pandas as pd

_PATIENCE = 5.0
"""seconds to wait for another process to release the lock"""

_SHORT_REASON = 500
"""characters; a status of one disk block can be overwritten on a full disk"""


class InUse(InputError):
    """Another process executes the run in this folder."""

    def __init__(self, folder: Path, holder: str) -> None:
        accepted = f"another process writes to it ({holder}); wait until it ends, or use another folder"
        super().__init__("folder", str(folder), accepted)
        self.holder = holder


class RunFolder:
    """The folder of one run, locked by one process until it is closed."""

    def __init__(self, path: str | Path, patience: float | None = None) -> None:
        self.path = Path(path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock: IO[str] = (self.path / LOCK).open("a+")
        except OSError as error:
            accepted = f"a folder that can be created and written to ({error.strerror})"
            raise InputError("folder", str(path), accepted) from error
        self._take_lock(_PATIENCE if patience is None else patience)
        delete_partial_files(self.path)
        self._columns: list[str] = []
        # A stopped run of a sweep is rarely the only one that is left.
        in_sweep = (self.path.parent / SWEEP_FILE).exists()
        self.way_to_resume = f"fedsum resume {self.path.parent if in_sweep else self.path}"
        """for messages"""

    def _take_lock(self, patience: float) -> None:
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
                    raise InUse(self.path, holder) from None
                time.sleep(0.1)
        self._lock.seek(0)
        self._lock.truncate()
        self._lock.write(f"process {os.getpid()} on {platform.node()}")
        self._lock.flush()

    def close(self) -> None:
        self._lock.close()

    # The config.

    def claim(
        self,
        config: Table,
        device: torch.device,
        free: Sequence[str] = (),
        more: Table | None = None,
        *,
        extend: bool = False,
    ) -> None:
        """Starts a run with this config in the folder, or checks that the folder's run has the same config.

        Args:
          config: as `RunSpec.dump` gives it.
          device: recorded in the environment.
          free: settings that may change when the run is resumed, as for `first_difference`; their new values are
            recorded.
          more: further entries of the environment.
          extend: whether `rounds` may grow.
        """
        if script_only(config):
            self.way_to_resume = "the same call of simulate"
        path, current = self.path / CONFIG, environment(device) | (more or {})
        if path.exists():
            recorded = self.refuse_another_run(config, free, extend=extend)
            original = recorded.get(ENVIRONMENT, {})
            differing = [k for k in LOGGED_CHANGES if k in current and original.get(k) != current[k]]
            if differing:
                changes = ", ".join(f"{k} {original.get(k)} -> {current[k]}" for k in differing)
                self.log(f"resumed in another environment; results may not be bit-identical: {changes}")
            if not (free or extend) or recorded == {**config, ENVIRONMENT: original}:
                return
            current = original  # the config records the environment in which the run began
        else:
            foreign = [entry.name for entry in self.path.iterdir() if entry.name not in (LOCK, LOG, STATUS)]
            if foreign:
                accepted = f"an empty folder or a run's folder; it has {foreign[0]} and no {CONFIG}"
                raise InputError("folder", str(self.path), accepted)
        with written_whole(path) as part:
            part.write_text(toml_text({**config, ENVIRONMENT: current}), encoding="utf-8")

    def refuse_another_run(self, config: Table, free: Sequence[str] = (), *, extend: bool = False) -> Table:
        """Returns the config in the folder; refuses `config`, with the arguments of `claim`, if it is another run's."""
        recorded = read_toml(self.path / CONFIG)
        refuse_difference(recorded, config, self.path, free, extend=extend)
        _refuse_other_directions(recorded, config, self.path)
        return recorded

    # The metrics.

    def rewrite_metrics(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Replaces the metrics by the rows of a checkpoint; the resumed run computes later rows again."""
        text = io.StringIO(newline="")
        if rows:
            self._columns = list(rows[0])
            csv.writer(text, lineterminator="\n").writerows([self._columns, *(self._cells(row) for row in rows)])
        with written_whole(self.path / METRICS) as part:
            part.write_text(text.getvalue())

    def cut_metrics(self, last_round: int) -> None:
        """Removes the rows after `last_round`; new rows are appended to the remaining rows."""
        self._columns = truncate_after(self.path / METRICS, last_round, self.log)

    def append(self, row: Mapping[str, float]) -> None:
        """Appends the row of one evaluation."""
        lines = [] if self._columns else [list(row)]
        self._columns = self._columns or list(row)
        try:
            with (self.path / METRICS).open("a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([*lines, self._cells(row)])
        except OSError as error:
            reason = f"the metrics could not be written ({error.strerror}); the last checkpoint is intact"
            raise OSError(f"{reason}: free disk space, then resume with: {self.way_to_resume}") from error

    def write_clients(self, table: "pd.DataFrame") -> None:
        """Replaces the table of the clients' scores."""
        part = self.path / f".{CLIENTS}.part"
        table.to_csv(part, index=False)
        part.replace(self.path / CLIENTS)

    def flush_metrics(self) -> None:
        """Waits until all metrics are on the disk."""
        if (self.path / METRICS).exists():
            flush(self.path / METRICS)

    def _cells(self, row: Mapping[str, float]) -> list[str]:
        new = [name for name in row if name not in self._columns]
        if new:
            raise InputError("evaluate", new[0], f"the same names every time: {', '.join(self._columns)}")
        return [repr(row[name]) if name in row else "" for name in self._columns]

    # Status, log and model.

    def set_status(self, state: str, round: int, reason: str = "", *, safe: bool = True) -> None:
        """Writes the status. `safe` waits until it is on the disk; progress updates need not wait."""
        table = {"state": state, "round": round, "reason": reason, "updated": now()}
        if not safe:
            part = self.path / f".{STATUS}.part"
            part.write_text(toml_text(table))
            part.replace(self.path / STATUS)
            return
        try:
            with written_whole(self.path / STATUS) as part:
                part.write_text(toml_text(table))
        except OSError:
            # A full disk has no room for a new file, but the old one can be overwritten.
            table["reason"] = reason[:_SHORT_REASON]
            with (self.path / STATUS).open("r+") as file:
                file.write(toml_text(table))
                file.truncate()

    def log(self, line: str) -> None:
        with (self.path / LOG).open("a") as file:
            file.write(f"{now()} {line}\n")

    def save_model(self, model: Any, x: Tensor) -> None:
        """Writes the tensors of a module under their names; of any other model the flat vector, under `x`."""
        tensors = model.state_dict() if isinstance(model, torch.nn.Module) else {"x": x}
        # A module may keep other objects in its state.
        on_cpu = {name: value.detach().cpu() for name, value in tensors.items() if isinstance(value, Tensor)}
        with written_whole(self.path / MODEL) as part:
            tensorfile.write_model(part, on_cpu)


def read_toml(path: Path) -> Table:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError("file", str(path), f"a TOML file written by fedsum ({error})") from error


def _refuse_other_directions(recorded: Table, config: Table, folder: Path) -> None:
    before = recorded.get(METRIC_DIRECTIONS, {})
    for name, better in config.get(METRIC_DIRECTIONS, {}).items():
        if before.get(name, better) != better:
            accepted = f"the run in {folder} has {short(before[name])}; use that value, or another folder"
            raise InputError(f"{METRIC_DIRECTIONS}.{name}", better, accepted)


def script_only(config: Mapping[str, Any]) -> bool:
    """Whether only the script that started a run can resume it: of a part of the run, the folder has a digest alone.

    A trace or a table of devices from a file has its path beside the digest.
    """
    return (DIGEST in config and "path" not in config) or any(
        script_only(part) for part in config.values() if isinstance(part, Mapping)
    )


def refuse_difference(
    recorded: Table, config: Table, folder: Path, free: Sequence[str] = (), *, extend: bool = False
) -> None:
    """Raises an InputError that names the first setting in which two configs differ; with `extend`, rounds may grow."""
    before, rounds = recorded.get("rounds", 0), config.get("rounds", 0)
    if extend and rounds < before:
        accepted = f"the run in {folder} has {before} rounds; it can only become longer"
        raise InputError("rounds", rounds, accepted)
    if difference := first_difference(recorded, config, (*free, "rounds") if extend else free):
        key, recorded_value, value = difference
        command = f"extend it with: fedsum resume {folder} --set rounds={rounds} (in Python: extend=True)"
        longer = ("extend it with extend=True" if script_only(recorded) else command) if rounds > before else ""
        way_out = longer if key == "rounds" and longer else "use that value, or another folder"
        raise InputError(key, value, f"the run in {folder} has {short(recorded_value)}; {way_out}")
