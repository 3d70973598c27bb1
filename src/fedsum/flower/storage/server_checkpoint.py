"""The server's checkpoints: the current one and the previous one, each with one file per client, all with checksums."""

import json
import os
import secrets
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from ...base.checks import InputError
from ...base.files import flush
from ...runs import BROKEN_CHECKPOINT, CHECKPOINT, METRICS, PREVIOUS_CHECKPOINT
from ..protocol import ServerState
from .checked_file import CHECKSUM, DamagedFile, read_checked, read_metadata, write_checked

PARTICIPATION, CLIENTS = "participation.csv", "clients"
_HEADER = "fedsum"
_FORMAT = 4
"""version of the checkpoint format; increased when older checkpoints cannot be resumed"""


@dataclass(frozen=True)
class Header:
    """What a checkpoint says besides its tensors."""

    identity: dict[str, Any]
    """the settings that a resumed run must share"""
    state: dict[str, Any]
    """`ServerState.numbers()`"""
    files: dict[int, str]
    """the file of each client, in the folder `clients`"""
    attendance: dict[str, Any] = field(default_factory=dict)
    """`Attendance.dump()`"""


class Checkpoints:
    """Writes and reads the checkpoints in a run folder. Files of clients never change once they are written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[int, str] = {}
        self._previous_files: set[str] = set()

    def save(
        self, state: ServerState, identity: dict[str, Any], attendance: dict[str, Any], changed: Collection[int]
    ) -> None:
        """Writes a checkpoint, which is on disk on return. The existing one becomes the previous checkpoint.

        Args:
          state: the state.
          identity: the settings that a resumed run must share.
          attendance: `Attendance.dump()`.
          changed: the clients whose tensors have changed since the last checkpoint.
        """
        (self.folder / CLIENTS).mkdir(exist_ok=True)
        files = {client: name for client, name in self._files.items() if client in state.last or client in state.table}
        for client in changed:
            tensors = state.client_tensors(client)
            if tensors:
                files[client] = f"{client}-{state.epoch}-{state.t}-{secrets.token_hex(4)}.safetensors"
                write_checked(self.folder / CLIENTS / files[client], tensors, {})
        header = {"format": _FORMAT, "identity": identity, "state": state.numbers(), "files": files}
        header["attendance"] = attendance
        path = self.folder / CHECKPOINT
        _link(path, self.folder / PREVIOUS_CHECKPOINT)
        write_checked(path, state.tensors(), {_HEADER: json.dumps(header)})
        self._delete_unused(set(self._previous_files), files)
        self._previous_files, self._files = set(self._files.values()), files

    def load(self, warn: Callable[[str], None]) -> tuple[ServerState, Header] | None:
        """The state of the newest checkpoint that is intact; None if the folder has no run.

        Raises an InputError if no checkpoint can be used.
        """
        damage = ""
        for name in (CHECKPOINT, PREVIOUS_CHECKPOINT):
            path = self.folder / name
            if not path.is_file():
                continue
            try:
                state, header = read_checkpoint(path)
            except DamagedFile as error:
                damage = str(error)
                warn(f"{error}; the file is now {BROKEN_CHECKPOINT}")
                path.replace(self.folder / BROKEN_CHECKPOINT)
                continue
            if name == PREVIOUS_CHECKPOINT:
                warn(f"continuing from the previous checkpoint, after round {state.t}")
                _link(path, self.folder / CHECKPOINT)
            self._files, self._previous_files = header.files, set()
            self._delete_unused({file.name for file in (self.folder / CLIENTS).glob("*")}, header.files)
            return state, header
        if damage or self._has_outputs():
            way_out = "restore a backup with `fedsum flower restore`, or use another folder"
            raise InputError("folder", str(self.folder), f"{damage or 'has a run, but no checkpoint'}; {way_out}")
        return None

    def _has_outputs(self) -> bool:
        names = (METRICS, PARTICIPATION)
        return any((self.folder / name).exists() for name in names) or any((self.folder / CLIENTS).glob("*"))

    def _delete_unused(self, candidates: set[str], files: dict[int, str]) -> None:
        for name in candidates - set(files.values()) - set(self._files.values()):
            (self.folder / CLIENTS / name).unlink(missing_ok=True)


def read_header(path: Path) -> Header:
    """What a checkpoint says, without its tensors. Raises a DamagedFile, or an InputError for another format."""
    try:
        metadata = read_metadata(path)
        header = json.loads(metadata[_HEADER])
        if header.get("format") != _FORMAT:
            if CHECKSUM in metadata:  # files of old versions have none
                read_checked(path)  # a damaged file may say anything
            raise InputError("folder", str(path.parent), "holds a checkpoint of another fedsum version")
        files = {int(client): str(name) for client, name in header["files"].items()}
        return Header(header["identity"], header["state"], files, header["attendance"])
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFile(f"{path.name} has no valid header ({error!r})") from error


def read_server_state(path: Path) -> tuple[ServerState, Header]:
    """A checkpoint without the vectors of its clients. Raises a DamagedFile."""
    header = read_header(path)
    tensors, _ = read_checked(path)
    return ServerState.restored(tensors, header.state, {}), header


def read_checkpoint(path: Path) -> tuple[ServerState, Header]:
    """A checkpoint and the files of its clients, all verified. Raises a DamagedFile."""
    header = read_header(path)
    tensors, _ = read_checked(path)
    clients: dict[int, dict[str, Tensor]] = {}
    for client, name in header.files.items():
        clients[client], _ = read_checked(path.parent / CLIENTS / name)
    return ServerState.restored(tensors, header.state, clients), header


def _link(path: Path, name: Path) -> None:
    """Gives a file a second name, so that it survives when its first name is given to another file."""
    if not path.exists():
        return
    part = name.with_name(f".{name.stem}.part{name.suffix}")
    with suppress(FileNotFoundError):
        part.unlink()
    os.link(path, part)
    part.replace(name)
    flush(name.parent)
