"""`fedsum flower init`: writes a Flower app. Flower's own `flwr run` runs it."""

from pathlib import Path
from typing import Annotated

import typer

from ..flower import require_flower


def flower_init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder; the app gets its name.")],
) -> None:
    """Write a complete, commented app that trains MNIST and runs with `flwr run`; its README has the commands."""
    require_flower()
    from ..flower import write_app

    for path in write_app(folder):
        typer.echo(path)
