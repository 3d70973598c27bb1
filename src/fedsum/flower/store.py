"""A client's state on its own disk: what was merged, and what may have been."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..algorithms import Message, State
from ..base.checks import InputError
from ..base.files import flush, sweep_up, written_whole


@dataclass(frozen=True)
class Version:
    """One state of a client, and the reply that goes with it."""

    epoch: int
    step: int
    base: int
    """the step of the state it was made from"""
    state: State
    uplink: Message

    @property
    def age(self) -> tuple[int, int]:
        return self.epoch, self.step


@dataclass(frozen=True)
class Kept:
    """All that a client has. `merged` is known to be; `pending` was sent, and the next order will tell."""

    merged: Version | None = None
    pending: Version | None = None

    @property
    def newest(self) -> tuple[int, int]:
        return max((version.age for version in (self.merged, self.pending) if version), default=(0, -1))

    def find(self, epoch: int, step: int) -> Version | None:
        for version in (self.pending, self.merged):
            if version and version.age == (epoch, step):
                return version
        return None


class Store:
    """Two files in a folder of this job and client. A write is on the disk when it returns."""

    def __init__(self, folder: str | Path, job: str, client: int) -> None:
        # The job's name came over the network; it may not lead out of the folder.
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", job):
            raise InputError("job", job, "letters, digits, dots, hyphens and underscores, 64 at most")
        self.folder = Path(folder) / job / f"client-{client}"

    def read(self) -> Kept:
        return Kept(_read(self.folder / "merged.safetensors"), _read(self.folder / "pending.safetensors"))

    def keep(self, version: Version) -> bool:
        """Makes `version` the pending one, made from the pending or the merged one before it.

        False, and nothing is changed, if another process has meanwhile gone further.
        """
        with self._alone():
            kept = self.read()
            if kept.newest > version.age:
                return False
            pending = kept.pending
            if pending and pending.age == (version.epoch, version.base):
                os.replace(self.folder / "pending.safetensors", self.folder / "merged.safetensors")
                flush(self.folder)
            with written_whole(self.folder / "pending.safetensors") as part:
                _write(part, version)
        return True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        # A client app outlives the SuperNode that started it: two may be at work for one client.
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            sweep_up(self.folder)
            yield


def _write(path: Path, version: Version) -> None:
    tensors = {f"state.{name}": value for name, value in version.state.items()}
    tensors |= {f"up.{name}": value for name, value in version.uplink.items()}
    # safetensors refuses tensors that share memory, as an expanded or a received one may.
    own = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
    numbers = {"epoch": version.epoch, "step": version.step, "base": version.base}
    try:
        save_file(own, path, {name: str(number) for name, number in numbers.items()})
    except SafetensorError as error:  # how it says that the disk is full
        raise OSError(str(error)) from error


def _read(path: Path) -> Version | None:
    """The version there; a file that cannot be read is as good as lost, and the protocol knows what to do then."""
    if not path.is_file():
        return None
    parts: dict[str, dict[str, Tensor]] = {"state": {}, "up": {}}
    try:
        with safe_open(path, framework="pt") as file:
            numbers = {name: int(number) for name, number in file.metadata().items()}
            for key in file.keys():  # noqa: SIM118  # not a mapping
                kind, name = key.split(".", 1)
                parts[kind][name] = file.get_tensor(key)
            return Version(**numbers, state=parts["state"], uplink=parts["up"])
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        return None
