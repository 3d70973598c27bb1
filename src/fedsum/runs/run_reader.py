"""Reads run folders: settings, metrics and state. No other module does."""

import csv
import fcntl
import io
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.checks import InputError
from .layout import CLIENTS, CONFIG, LOCK, METRICS, STATUS, is_run

if TYPE_CHECKING:
    import pandas as pd

OVER = ("finished", "diverged")
"""states of a run that has its result"""


@dataclass(frozen=True)
class Run:
    """A run as read from its folder. Reading changes nothing and is safe while the run is running.

    A missing, incomplete or damaged file does not raise an error: `problem` describes the damage.
    """

    folder: Path
    state: str = "new"
    """new, running, stopped, interrupted (its process no longer exists), failed, diverged, finished, or damaged (its
    config cannot be read)"""
    round: int = 0
    """rounds done"""
    reason: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    """every setting, and the environment; empty before the run begins"""
    rows: list[dict[str, float]] = field(default_factory=list)
    """one row per evaluation"""
    problem: str = ""
    """the damaged file and its error; empty if no file is damaged"""
    packed_clients: Mapping[str, list[Any]] | None = None
    """the columns of `clients` in a packed file"""

    @classmethod
    def read(cls, folder: str | Path) -> "Run":
        """Reads the run in a folder; refuses a folder without one."""
        run = cls.read_or_new(folder)
        if run.state == "new" and not run.rows:
            accepted = f"no run in it: a run is a folder with a {CONFIG} and a {STATUS}"
            raise InputError("folder", str(folder), accepted if run.folder.is_dir() else "no such folder")
        return run

    @classmethod
    def read_or_new(cls, folder: str | Path) -> "Run":
        """Reads the run in a folder, which need not exist yet; the state of a run that has not begun is "new"."""
        folder = Path(folder)
        config, bad_config = _config(folder / CONFIG)
        rows, bad_metrics = _rows(folder / METRICS)
        status = _status(folder / STATUS)
        # A process killed before its first status update leaves only a config.
        state = str(status.get("state", "running" if config else "new"))
        if state == "running" and not is_held(folder):
            state = "interrupted"
        if bad_config:
            state = "damaged"
        problem = bad_config or bad_metrics
        reason = str(status.get("reason", "")) or problem
        return cls(folder, state, status.get("round", 0), reason, config, rows, problem)

    @property
    def last(self) -> dict[str, float]:
        """The last evaluation; empty if there was none."""
        return self.rows[-1] if self.rows else {}

    @cached_property
    def metrics(self) -> "pd.DataFrame":
        """One row per evaluation; empty, with a column `round`, if there was none."""
        import pandas as pd

        table = pd.DataFrame(self.rows) if self.rows else pd.DataFrame({"round": pd.Series(dtype=int)})
        return table.astype({"round": int})

    @cached_property
    def clients(self) -> "pd.DataFrame | None":
        """With `per_client`: client, active rounds, loss and accuracy at the last evaluation; otherwise None."""
        import pandas as pd

        if self.packed_clients is not None:
            return pd.DataFrame(self.packed_clients)
        try:
            # As text, because pandas would read the names "001" and "NA" as 1 and NaN.
            cells = pd.read_csv(self.folder / CLIENTS, dtype=str, keep_default_na=False)
            names = cells.pop("client").tolist()
            scores: pd.DataFrame = cells.apply(pd.to_numeric)
        except (OSError, ValueError, KeyError):  # an empty or damaged file
            return None
        ids = list(range(len(names)))
        scores.insert(0, "client", ids if names == list(map(str, ids)) else names)
        return scores

    @property
    def name(self) -> str:
        return self.folder.name


def find_runs(folder: str | Path) -> list[Path]:
    """The folder itself if it is a run, or all runs below it at any depth, sorted."""
    folder = Path(folder)
    if is_run(folder):
        return [folder]
    return sorted(path.parent for path in folder.rglob(CONFIG) if is_run(path.parent))


def is_held(folder: Path) -> bool:
    """Whether a process holds the folder's lock."""
    try:
        with (folder / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _config(path: Path) -> tuple[dict[str, Any], str]:
    """The config and its problem, which is empty if the config is complete."""
    if not path.exists():
        return {}, ""
    try:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return {}, f"{path.name}: {error}"
    if problem := config_problem(config):
        return {}, f"{path.name}: {problem}"
    return config, ""


def config_problem(config: Mapping[str, Any]) -> str:
    """The first table or setting that a config lacks; empty if it lacks none."""
    for part in ("task", "algorithm", "schedule"):
        if not isinstance(config.get(part), dict) or not isinstance(config[part].get("name"), str):
            return f"no table [{part}] with a name"
    return "" if isinstance(config.get("rounds"), int) else "no setting rounds"


def _status(path: Path) -> dict[str, Any]:
    try:
        status = tomllib.loads(path.read_text(encoding="utf-8"))
        return status | {"round": int(status["round"]), "state": str(status["state"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _rows(path: Path) -> tuple[list[dict[str, float]], str]:
    """The rows of a metrics file by round, and its first problem.

    If a round was evaluated twice, the later row counts. A killed process or a power cut may leave an incomplete last
    line. This is not a problem: the resumed run evaluates that round again.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return [], ""
    lines_text = text[: text.rfind("\n") + 1]
    try:
        header, *lines = list(csv.reader(io.StringIO(lines_text.replace("\0", "?"), newline=""))) or [["round"]]
    except csv.Error as error:
        return [], f"{path.name}: {error}"
    if "round" not in header:
        return [], f"{path.name}: no column named round"
    rows: dict[int, dict[str, float]] = {}
    problem = ""
    for number, cells in enumerate(lines):
        try:
            row = {name: _number(cell) for name, cell in zip(header, cells, strict=True) if cell}
            rows[int(row["round"])] = row
        except (ValueError, KeyError, OverflowError):
            if number < len(lines) - 1:
                problem = problem or f"{path.name} line {number + 2}: {','.join(cells)!r} is not {len(header)} numbers"
    return [rows[t] for t in sorted(rows)], problem


def _number(cell: str) -> float:
    return int(cell) if cell.lstrip("-").isdecimal() else float(cell)
