"""The speed and the links of the clients' devices, from which simulated time follows."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..base.checks import InputError, nearest, set_fields
from ..base.keyed import Purpose, rng
from ..base.registry import build, refuse_digest, split
from ..base.toml_values import DIGEST, Table, plain
from .device_files import read_device_columns
from .distributions import DISTRIBUTIONS, LogNormal, LogUniform
from .schedule import Ids
from .trace_values import all_names

Amount = float | NDArray[np.float64] | LogUniform | LogNormal
FIELDS = ("seconds_per_step", "up", "down")
_BLOCK = 1024
"""clients that are drawn together, so that a client costs no generator of its own"""
_ACCEPTED = "a number, an array with one number per client, fedsum.LogUniform or fedsum.LogNormal"


@dataclass(frozen=True, eq=False)
class Devices:
    """The speed of the clients' devices and links: a number for all, one number per client, or a distribution.

    A client needs K * seconds_per_step for its steps, and the bytes of its messages divided by its links. Draws from a
    distribution are a function of the run's seed and the client.

    Args:
      seconds_per_step: seconds per local step; 0: steps take no time.
      up: bytes per second from the client to the server; infinite: messages take no time.
      down: bytes per second from the server to the client.
      catalogue: the arrays are a list of devices, and every client draws one of them.
      source: the file that `Devices.read` has read.
      names: the clients' names by id, if the file has them.

    >>> devices = Devices(seconds_per_step=[0.1, 0.2], up=1e6)
    >>> devices.seconds(np.array([0, 1]), seed=0, steps=10, down_bytes=4000, up_bytes=500_000)
    array([1.5, 2.5])
    """

    seconds_per_step: float | ArrayLike | LogUniform | LogNormal = 0.0
    up: float | ArrayLike | LogUniform | LogNormal = math.inf
    down: float | ArrayLike | LogUniform | LogNormal = math.inf
    catalogue: bool = False
    source: str | None = None
    names: tuple[str, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        set_fields(self, **{name: _amount(name, getattr(self, name)) for name in FIELDS})
        lengths = {len(value) for value in self._amounts.values() if isinstance(value, np.ndarray)}
        if len(lengths) > 1:
            raise InputError("devices", sorted(lengths), "arrays of the same length")
        drawn = any(isinstance(value, LogUniform | LogNormal) for value in self._amounts.values())
        if self.catalogue and (drawn or not lengths):
            raise InputError("catalogue", True, "arrays, with one entry per device")

    @classmethod
    def read(cls, path: str | Path, *, clients: Sequence[str] | None = None) -> "Devices":
        """Reads the columns `seconds_per_step`, `up` and `down` of a CSV, JSON lines or Parquet file.

        With a column `client`, a row is the device of one client; ids follow the sorted names, as in a trace. Without
        it, the file is a catalogue, from which every client draws a device. A missing `up` or `down` is infinite.

        Args:
          path: the file.
          clients: the names of all clients in the order of their ids, such as `task.client_names`; default: sorted.
        """
        columns, names = read_device_columns(Path(path), FIELDS, clients)
        return cls(**columns, catalogue=names is None, source=str(Path(path).resolve()), names=names)

    @property
    def n(self) -> int | None:
        """The number of clients, if there is one entry per client; otherwise any number."""
        arrays = [value for value in self._amounts.values() if isinstance(value, np.ndarray)]
        return len(arrays[0]) if arrays and not self.catalogue else None

    def seconds(
        self, ids: Ids, seed: int, *, steps: int | NDArray[np.int64], down_bytes: int, up_bytes: int
    ) -> NDArray[np.float64]:
        """The time that each of these clients needs for a round, at a cost of O(clients)."""
        step, up, down = (self._of(number, name, ids, seed) for number, name in enumerate(FIELDS))
        return np.asarray(down_bytes / down + steps * step + up_bytes / up, dtype=np.float64)

    def _of(self, number: int, name: str, ids: Ids, seed: int) -> NDArray[np.float64]:
        amount = self._amounts[name]
        if isinstance(amount, float):
            return np.full(len(ids), amount)
        if isinstance(amount, np.ndarray):
            return amount[_drawn(len(amount), seed, 0, ids) if self.catalogue else ids]
        return _drawn(amount, seed, number, ids)

    @property
    def _amounts(self) -> dict[str, Amount]:
        return {name: getattr(self, name) for name in FIELDS}

    def dump(self) -> Table:
        """A table of TOML types; `parse` is the inverse."""
        if self.source is not None:
            digest = hashlib.sha256()
            for name in FIELDS:
                digest.update(np.ascontiguousarray(self._amounts[name]).data)
            own_order = self.names is not None and self.names != all_names(list(self.names), None)
            clients = {"clients": list(self.names or ())} if own_order else {}
            return {"path": self.source, **clients, DIGEST: digest.hexdigest()}
        table: Table = {"catalogue": True} if self.catalogue else {}
        for name, value in self._amounts.items():
            if isinstance(value, LogUniform | LogNormal):
                table[name] = {"name": type(value).__name__, **plain(vars(value), 0)}
            elif value != math.inf if isinstance(value, float) else True:  # infinite is the default
                table[name] = plain(value, 0)
        return table

    @classmethod
    def parse(cls, table: Any) -> "Devices":
        """From a table of settings: the fields, or the `path` of a file."""
        if not isinstance(table, Mapping):
            raise InputError("devices", table, "a table such as {seconds_per_step = 0.1, up = 1e6, down = 5e6}")
        accepted = ("path", "clients", DIGEST) if "path" in table else (*FIELDS, "catalogue")
        for name, value in table.items():
            if name not in accepted:
                raise InputError(f"devices.{name}", value, f"no such field; {nearest(name, (*FIELDS, 'path'))}")
        if "path" not in table:
            return cls(**{name: _parsed(f"devices.{name}", value) for name, value in table.items()})
        devices = cls.read(table["path"], clients=table.get("clients"))
        if table.get(DIGEST) not in (None, devices.dump()[DIGEST]):
            raise InputError("devices.path", table["path"], "the file has changed since this run began")
        return devices

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Devices) and self.dump() == other.dump()

    def __hash__(self) -> int:
        return hash(repr(self.dump()))


def check_devices(field: str, value: Any) -> Devices | None:
    if value is not None and not isinstance(value, Devices):
        raise InputError(field, value, "fedsum.Devices(seconds_per_step=..., up=..., down=...), or None")
    return value


def _amount(field: str, value: Any) -> Amount:
    if isinstance(value, LogUniform | LogNormal):
        return value
    try:
        if isinstance(value, str | bytes | bool):
            raise TypeError
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(field, value, _ACCEPTED) from None
    zero = field == "seconds_per_step"
    right = (numbers >= 0) & np.isfinite(numbers) if zero else numbers > 0
    if numbers.ndim > 1 or not numbers.size or not right.all():
        wrong = numbers if numbers.ndim == 0 else value
        limit = "finite, at least 0" if zero else "greater than 0"
        raise InputError(field, wrong, f"{_ACCEPTED}; {limit}")
    return float(numbers) if numbers.ndim == 0 else numbers


def _parsed(field: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    refuse_digest(field, value)
    return build(field, DISTRIBUTIONS, *split(field, value))


def _drawn(source: LogUniform | LogNormal | int, seed: int, number: int, ids: Ids) -> NDArray[Any]:
    """One draw per client from a distribution, or of a place in a catalogue of `source` devices."""
    blocks, places = np.divmod(ids, _BLOCK)
    drawn = np.empty(len(ids), dtype=np.int64 if isinstance(source, int) else np.float64)
    for block in np.unique(blocks).tolist():
        here = blocks == block
        drawn[here] = _block(source, seed, number, block)[places[here]]
    return drawn


@lru_cache(maxsize=4096)
def _block(source: LogUniform | LogNormal | int, seed: int, number: int, block: int) -> NDArray[Any]:
    generator = rng(seed, Purpose.DEVICES, number, block)
    if isinstance(source, int):
        return generator.integers(source, size=_BLOCK)
    return source.draw(generator, _BLOCK)
