"""What all commands print with."""

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

out = Console()
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of tables.")]
# Progress bars vanish when they are done, and are not drawn into a log.
QUIET: dict[str, Any] = {"transient": True, "disable": not err.is_terminal}


def figure(column: str, value: float) -> str:
    """A metric as people read it."""
    return f"{value:.1%}" if column.endswith("accuracy") else f"{value:.2g}"


def print_path(what: str, path: Path) -> None:
    # A long path must stay on one line, to be clicked or copied.
    out.print(f"{what}: {path}", soft_wrap=True, highlight=False)


def print_json(value: Any) -> None:
    """JSON has no NaN: a diverged loss is null."""
    out.print_json(json.dumps(_finite(value)))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
