"""A client's state on its own disk: the merged version and the pending one."""

import fcntl
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ..algorithms import Message, State
from ..base.checks import InputError
from ..base.files import delete_partial_files, flush
from .checked_file import DamagedFile, read_checked, write_checked

_MERGED, _PENDING = "merged.safetensors", "pending.safetensors"
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class StateVersion:
    """One version of a client's state, and the uplink that was sent with it."""

    epoch: int
    step: int
    base: int
    """the step of the version it was computed from"""
    state: State
    uplink: Message

    @property
    def stamp(self) -> tuple[int, int]:
        """(epoch, step): a later version has a larger stamp."""
        return self.epoch, self.step


@dataclass(frozen=True)
class ClientVersions:
    """The versions that a client has saved.

    The server has merged `merged`. `pending` was sent, and the next order tells whether it was merged.
    """

    merged: StateVersion | None = None
    pending: StateVersion | None = None

    @property
    def newest(self) -> tuple[int, int]:
        """The stamp of the newest version; (0, -1) if there is none."""
        return max((version.stamp for version in (self.merged, self.pending) if version), default=(0, -1))

    def find(self, epoch: int, step: int) -> StateVersion | None:
        """The version with this stamp."""
        for version in (self.pending, self.merged):
            if version and version.stamp == (epoch, step):
                return version
        return None


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

        Returns False and changes nothing if another process has saved a later version in the meantime.
        """
        with self._locked():
            versions = self.read()
            if versions.newest > version.stamp:
                return False
            pending = versions.pending
            if pending and pending.stamp == (version.epoch, version.base):
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
    numbers = {"epoch": version.epoch, "step": version.step, "base": version.base}
    write_checked(path, tensors, {name: str(number) for name, number in numbers.items()})


def _read(path: Path) -> StateVersion | None:
    """The version in a file. A damaged file counts as lost, which the protocol handles."""
    if not path.is_file():
        return None
    groups: dict[str, dict[str, Tensor]] = {"state": {}, "up": {}}
    try:
        tensors, names = read_checked(path)
        numbers = {name: int(number) for name, number in names.items()}
        for key, value in tensors.items():
            kind, name = key.split(".", 1)
            groups[kind][name] = value
        return StateVersion(**numbers, state=groups["state"], uplink=groups["up"])
    except (DamagedFile, ValueError, KeyError, TypeError) as error:
        _LOGGER.warning("this client's state counts as lost: %s: %s", path, error)
        return None
