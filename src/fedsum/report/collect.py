"""Run folders, read back: what was asked, what was measured, how it ended."""

import csv
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ..base.checks import InputError
from ..runs.folder import CONFIG, METRICS, STATUS
from ..runs.standing import held


@dataclass(frozen=True, eq=False)
class Collected:
    """One run folder."""

    folder: Path
    config: dict[str, Any]
    metrics: pd.DataFrame
    """a row for each evaluation; empty if there was none yet"""
    state: str
    """running, stopped, interrupted (its process is gone), diverged, finished or failed; unknown if the folder does
    not say"""
    round: int
    """rounds done"""
    reason: str


def collect(folder: str | Path) -> list[Collected]:
    """Every run in a folder, at any depth, or the folder itself if it is a run; sorted by path."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError("folder", str(folder), "a folder with runs in it")
    found = sorted(path.parent for path in folder.rglob(CONFIG))
    if not found:
        raise InputError("folder", str(folder), f"no runs in it: a run is a folder with a {CONFIG}")
    return [_read(run) for run in found]


def _read(folder: Path) -> Collected:
    config = _toml(folder / CONFIG)
    for table in ("task", "algorithm", "schedule"):
        if not isinstance(config.get(table), dict) or not isinstance(config[table].get("name"), str):
            raise InputError(str(folder / CONFIG), config.get(table), f"a table [{table}] with a name")
    metrics = _metrics(folder / METRICS)
    status = _toml(folder / STATUS) if (folder / STATUS).exists() else {"reason": f"no {STATUS}"}
    last = int(metrics["round"].iloc[-1]) if len(metrics) else 0
    state = str(status.get("state", "unknown"))
    return Collected(
        folder=folder,
        config=config,
        metrics=metrics,
        state="interrupted" if state == "running" and not held(folder) else state,
        round=int(status.get("round", last)),
        reason=str(status.get("reason", "")),
    )


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), str(error), "a TOML file") from error


def _metrics(path: Path) -> pd.DataFrame:
    """The table; a last line that a killed writer left unfinished is dropped, rounds done twice count once."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    lines = text.splitlines()
    if lines and not text.endswith("\n"):
        lines.pop()
    rows = list(csv.reader(lines))
    if not rows:
        return pd.DataFrame({"round": pd.Series(dtype=int)})
    head, numbers = rows[0], []
    for row in rows[1:]:
        try:
            if len(row) != len(head):
                raise ValueError
            numbers.append([float(value or "nan") for value in row])
        except ValueError:
            if row is not rows[-1]:
                raise InputError(f"{path} line", ",".join(row), f"{len(head)} numbers: {', '.join(head)}") from None
    table = pd.DataFrame(numbers, columns=head, dtype=float)
    if "round" not in table:
        raise InputError(f"{path} columns", ", ".join(head), "a column named round")
    table = table.astype({"round": int})
    return table.drop_duplicates("round", keep="last").sort_values("round", ignore_index=True)
