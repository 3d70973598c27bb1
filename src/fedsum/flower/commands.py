"""`fedsum flower ...`: what is needed around an app; running it is Flower's own `flwr run`."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ..base.checks import InputError

app = typer.Typer(no_args_is_help=True, help="Deploy on Flower: a complete app, certificates and keys.")


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New or empty; its name becomes the app's.")],
) -> None:
    """Write a complete, commented app that trains MNIST and runs with `flwr run`; its README has the commands."""
    _needs_flower()
    from .app_template import write_app

    for path in write_app(folder):
        typer.echo(path)


@app.command()
def certs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New or empty.")],
    clients: Annotated[int, typer.Option(help="N, clients: a key for each.")] = 5,
    host: Annotated[list[str] | None, typer.Option(help="Names or addresses of the server, besides this one.")] = None,
) -> None:
    """Write a test CA, a server certificate, and a key for each client."""
    _needs_flower()
    from .certs import write_certs

    for path in write_certs(folder, clients, ["localhost", "127.0.0.1", *(host or [])]):
        typer.echo(path)


def _needs_flower() -> None:
    if find_spec("flwr") is None:
        raise InputError("flower", "not installed", "pip install 'fedsum[flower]'")
