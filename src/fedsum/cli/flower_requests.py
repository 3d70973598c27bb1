"""Requests to the server of a deployment, shared by `fedsum flower evict` and `readmit`."""

import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from ..base.checks import InputError
from .console import err, out

Client = Annotated[int, typer.Argument(metavar="CLIENT", help="Client id.")]
Wait = Annotated[float, typer.Option(help="Seconds to wait until the server has applied the request.")]
_POLL = 0.2


def request_and_wait(folder: Path, kind: Literal["evict", "readmit"], client: int, seconds: float) -> None:
    """Leaves the request in the run folder, and waits until the server has applied it."""
    from ..flower import deployment_status, make_request

    status = deployment_status(folder)
    if client not in range(len(status.clients)):
        raise InputError("client", client, f"ids from 0 to {len(status.clients) - 1}")
    path = make_request(folder, kind, client)
    until = time.monotonic() + seconds
    while path.exists() and time.monotonic() < until:
        time.sleep(_POLL)
    if not path.exists():
        out.print(f"{kind} {client}: applied; see the last lines of {folder / 'log'}", soft_wrap=True, highlight=False)
    elif status.run.state == "running":
        out.print(f"{kind} {client}: the server applies the request after this round", highlight=False)
    else:
        line = f"{kind} {client}: the server is {status.run.state} and applies the request when it starts"
        err.print(line, highlight=False)
