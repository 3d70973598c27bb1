"""A client's state on its own disk: the merged version and the pending one."""

import fcntl
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from ...base.checks import InputError
from ...base.files import delete_partial_files, flush
from ..protocol import ClientVersions, StateVersion
from .checked_file import DamagedFile, read_checked, write_checked

_MERGED, _PENDING = "merged.safetensors", "pending.safetensors"
_LOGGER = logging.getLogger(__name__)


class ClientStore:
    """Saves a client's versions as two files in a folder per job and client. When a write returns, it is on disk."""

    def __init__(self, folder: str | Path, job: str, client: int) -> None:
        # The job's name comes over the network, so it must not point outside the folder.
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", job):
            raise InputError("job", job, "letters, digits, dots, hyphens and underscores, 64 at most")
        self.folder = Path(folder) / job / f"client-{client}"

    def read(self) -> ClientVersions:
        """The saved versions; a damaged file counts as missing."""
        return ClientVersions(_read(self.folder / _MERGED), _read(self.folder / _PENDING))

    def save(self, version: StateVersion) -> bool:
        """Saves `version` as pending. The previous pending version becomes the merged one if `version` builds on it.

        Returns False and changes nothing if the result of the same or of a later order is saved already.
        """
        with self._locked():
            versions = self.read()
            if versions.after(version) is None:
                return False
            if versions.promotes(version):
                os.replace(self.folder / _PENDING, self.folder / _MERGED)
                flush(self.folder)
            _write(self.folder / _PENDING, version)
        return True

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # A client app outlives the SuperNode that started it, so two client apps may run for the same client.
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            delete_partial_files(self.folder)
            yield


def _write(path: Path, version: StateVersion) -> None:
    tensors = {f"state.{name}": value for name, value in version.state.items()}
    tensors |= {f"up.{name}": value for name, value in version.uplink.items()}
    names = {"version": version.version, "base": version.base, "order": version.order, "serial": str(version.serial)}
    write_checked(path, tensors, names)


def _read(path: Path) -> StateVersion | None:
    """The version in a file. A damaged file counts as lost, which the protocol handles."""
    if not path.is_file():
        return None
    groups: dict[str, dict[str, Tensor]] = {"state": {}, "up": {}}
    try:
        tensors, names = read_checked(path)
        serial = int(names.pop("serial"))
        for key, value in tensors.items():
            kind, name = key.split(".", 1)
            groups[kind][name] = value
        return StateVersion(**names, serial=serial, state=groups["state"], uplink=groups["up"])
    except (DamagedFile, ValueError, KeyError, TypeError) as error:
        _LOGGER.warning("this client's state counts as lost: %s: %s", path, error)
        return None
