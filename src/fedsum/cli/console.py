"""What all commands print with."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

out = Console()
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of tables.")]
# Progress is for people: nothing of it stays, and none of it goes into a log.
QUIET: dict[str, Any] = {"transient": True, "disable": not err.is_terminal}


def figure(column: str, value: float) -> str:
    """A metric as people read it."""
    return f"{value:.1%}" if column.endswith("accuracy") else f"{value:.2g}"


def print_path(what: str, path: Path) -> None:
    # A long path must stay on one line, to be clicked or copied.
    out.print(f"{what}: {path}", soft_wrap=True, highlight=False)
