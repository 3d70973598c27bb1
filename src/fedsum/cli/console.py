"""The consoles of all commands, and functions to print with them."""

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ..base.metrics import LABELS, is_percent

out = Console()
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of tables.")]
# Progress bars disappear when they are complete. They are not drawn if standard error is not a terminal.
PROGRESS_OPTIONS: dict[str, Any] = {"transient": True, "disable": not err.is_terminal}


def format_metric(column: str, value: float, sign: str = "") -> str:
    """A metric, formatted for a table; `sign="+"` shows the sign of a difference.

    A user's own metric has more digits: differences of an AUC are often in the third.
    """
    if is_percent(column):
        return f"{value:{sign}.1%}"
    return f"{value:{sign}.2g}" if column in LABELS else f"{value:{sign}.4g}"


def print_path(label: str, path: Path) -> None:
    # A long path stays on one line, so that it can be clicked or copied.
    out.print(f"{label}: {path}", soft_wrap=True, highlight=False)


def note_replaced(path: Path) -> None:
    """A note if a file exists that is now replaced: an earlier result is not lost without a word."""
    if path.exists():
        note = f"note: the earlier {path} is replaced; --out names another file"
        err.print(note, soft_wrap=True, highlight=False, markup=False)


def print_json(value: Any) -> None:
    """Prints JSON. NaN and infinity become null, because JSON has no such numbers."""
    out.print_json(json.dumps(_finite(value)))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
