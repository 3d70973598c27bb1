"""The states of both sides on disk: the server's checkpoints and each client's versions, in files with checksums."""

from .checked_file import DamagedFile
from .client_store import ClientStore
from .server_checkpoint import (
    CLIENTS,
    PARTICIPATION,
    Checkpoints,
    Header,
    read_checkpoint,
    read_header,
    read_server_state,
)

__all__ = [
    "CLIENTS",
    "PARTICIPATION",
    "Checkpoints",
    "ClientStore",
    "DamagedFile",
    "Header",
    "read_checkpoint",
    "read_header",
    "read_server_state",
]
