"""How far a run is, read from its folder by anybody at any time."""

import csv
import fcntl
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from .folder import CONFIG, LOCK, METRICS, STATUS

OVER = ("finished", "diverged")
"""states that another call leaves alone: the run has its result"""


@dataclass(frozen=True)
class Standing:
    """What a folder says of its run."""

    state: str = "new"
    """new, running, stopped, interrupted (its process is gone), failed, diverged or finished"""
    round: int = 0
    reason: str = ""
    last: dict[str, float] = field(default_factory=dict)
    """its last evaluation"""


def standing(folder: Path) -> Standing:
    """A run's standing; what is half written or broken counts as not there."""
    try:
        with (folder / STATUS).open("rb") as file:
            found = tomllib.load(file)
        state, round, reason = str(found["state"]), int(found["round"]), str(found["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        begun = (folder / CONFIG).exists()
        state, round, reason = "running" if begun else "new", 0, ""
    if state == "running" and not held(folder):
        state = "interrupted"
    return Standing(state, round, reason, last_row(folder / METRICS))


def last_row(path: Path) -> dict[str, float]:
    """The last whole line of a metrics file."""
    for row in reversed(rows(path)):
        return row
    return {}


def rows(path: Path) -> list[dict[str, float]]:
    """All whole lines of a metrics file; one that a power cut left broken is left out."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error):
        return []
    found = []
    for cells in lines[1:]:
        try:
            pairs = list(zip(lines[0], cells, strict=True))
            found.append({name: _number(cell) for name, cell in pairs if cell})
        except ValueError:
            continue
    return found


def _number(cell: str) -> float:
    return int(cell) if cell.lstrip("-").isdecimal() else float(cell)


def held(folder: Path) -> bool:
    """Whether a process has the folder's lock."""
    try:
        with (folder / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def run_folders(folder: Path) -> list[Path]:
    """The folder itself if it is a run's, or all runs below it."""
    if _is_run(folder):
        return [folder]
    return sorted(path.parent for path in folder.rglob(CONFIG) if _is_run(path.parent))


def _is_run(folder: Path) -> bool:
    """Many things have a config.toml; a run has a status, or a lock, beside it."""
    return (folder / CONFIG).exists() and any((folder / name).exists() for name in (STATUS, LOCK))
