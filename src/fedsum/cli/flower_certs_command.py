"""`fedsum flower certs`: writes certificates and keys for TLS and authentication."""

from pathlib import Path
from typing import Annotated

import typer

from ..flower import require_flower


def flower_certs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    clients: Annotated[int, typer.Option(help="N, clients: one key per client.")] = 5,
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or address of the server, besides localhost and 127.0.0.1; repeatable."),
    ] = None,
) -> None:
    """Write a test CA, a server certificate, and a key for each client. Certificates are valid for one year."""
    require_flower()
    from ..flower import write_certs

    for path in write_certs(folder, clients, ["localhost", "127.0.0.1", *(host or [])]):
        typer.echo(path)
