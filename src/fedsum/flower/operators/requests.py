"""Requests of an operator to the server: empty files in the run folder, which the server applies between rounds.

A file survives if no server is running. Then it is applied when the server starts.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...base.checks import InputError
from ...base.files import flush
from ..protocol import Ledger

REQUESTS = "requests"
_NAME = re.compile(r"\d+-(?P<kind>evict|readmit)-(?P<client>\d{1,9})|\d+-(?P<epoch>epoch)")

Kind = Literal["evict", "readmit"]


@dataclass(frozen=True)
class Request:
    """One request; `client` is None for a new epoch, which a restored backup needs."""

    kind: str
    client: int | None
    path: Path

    def __str__(self) -> str:
        return self.kind if self.client is None else f"{self.kind} {self.client}"


def make_request(folder: Path, kind: Kind, client: int) -> Path:
    """Asks the server to evict or to readmit a client. Returns the file, which exists until the request is applied."""
    return _create(folder, f"{kind}-{client}")


def request_epoch(folder: Path) -> Path:
    """Asks the server to begin a new epoch before its first round."""
    return _create(folder, "epoch")


def pending_requests(folder: Path) -> list[Request]:
    """The requests that are not applied yet, the oldest first."""
    requests = []
    for path in sorted((folder / REQUESTS).glob("*")):
        match = _NAME.fullmatch(path.name)
        if match:
            client = None if match["epoch"] else int(match["client"])
            requests.append(Request(match["epoch"] or match["kind"], client, path))
    return requests


def apply_requests(folder: Path, ledger: Ledger, log: Callable[[str], None], save: Callable[[], None]) -> None:
    """Applies all requests. A server that is killed meanwhile applies the last one again, which changes nothing."""
    for request in pending_requests(folder):
        log(f"operator: {request}: {_apply(request, ledger)}")
        save()
        request.path.unlink(missing_ok=True)


def _apply(request: Request, ledger: Ledger) -> str:
    if request.client is None:
        return ledger.begin_epoch()
    try:
        return ledger.evict(request.client) if request.kind == "evict" else ledger.readmit(request.client)
    except InputError as error:
        return f"refused: {error}"


def _create(folder: Path, name: str) -> Path:
    path = folder / REQUESTS / f"{time.time_ns():020d}-{name}"
    path.parent.mkdir(exist_ok=True)
    path.touch(exist_ok=False)
    flush(path.parent)
    return path
