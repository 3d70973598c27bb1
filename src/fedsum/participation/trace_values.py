"""The values in trace files: rounds, times, client names."""

import math
import warnings
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from ..base.checks import InputError, integer

_UNITS = {1e17: ("nanoseconds", 1e9), 1e14: ("microseconds", 1e6), 1e11: ("milliseconds", 1e3)}
"""units of times since 1970, by the smallest number that is not a time of this century in the next larger unit"""


def as_round(place: str, value: Any) -> int:
    try:
        if isinstance(value, str):
            if not (value.isdecimal() and value.isascii()):
                raise ValueError
            return int(value)
        return integer(place, value, low=0)
    except ValueError:
        raise InputError(place, value, "a round, a whole number from 0 up") from None


class TimeColumn:
    """Reads the times of a file, which are all numbers, all dates with a time zone, or all dates without one.

    A date without a time zone is taken as UTC. Beside dates with a time zone it is more likely a local time.
    """

    def __init__(self) -> None:
        self._first: tuple[str, str] | None = None

    def read(self, place: str, value: Any) -> float:
        seconds, kind = _time(place, value)
        self._first = self._first or (place, kind)
        if kind != self._first[1]:
            raise InputError(place, value, f"{self._first[1]}, as in {self._first[0]}")
        return seconds


def as_time(place: str, value: Any) -> float:
    return _time(place, value)[0]


def _time(place: str, value: Any) -> tuple[float, str]:
    """A time in seconds or in the file's unit, and what kind of value it is."""
    try:
        moment = value
        if isinstance(moment, str):
            if "_" in moment:  # Python reads 1_0 as 10
                raise ValueError
            try:
                moment = float(moment)
            except ValueError:
                moment = datetime.fromisoformat(moment)
        kind = "a number"
        if type(moment) is date:  # a day, in Parquet
            moment = datetime(moment.year, moment.month, moment.day)
        if isinstance(moment, datetime):
            kind = f"a date {'with' if moment.tzinfo else 'without'} a time zone"
            moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        seconds = float(moment)
    except (TypeError, ValueError, OverflowError):
        raise InputError(place, value, "a time, a number or an ISO 8601 date") from None
    if not math.isfinite(seconds):
        raise InputError(place, value, "a finite time")
    return seconds, kind


def as_client(place: str, value: Any) -> str:
    name = "" if value is None else str(value)
    if not name:
        raise InputError(place, value, "a client name")
    return name


def all_names(clients_seen: list[str], clients: int | Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(clients, str):
        raise InputError("clients", clients, "a number, or a list of names")
    if isinstance(clients, Sequence):
        names = tuple(str(name) for name in clients)
        if not names or len(set(names)) < len(names):
            raise InputError("clients", list(names), "distinct names, at least one")
        return names
    distinct = set(clients_seen)
    numbered = all(name.isdecimal() and name.isascii() for name in distinct)
    if clients is not None and numbered:
        return tuple(str(i) for i in range(integer("clients", clients, low=1)))
    if clients is not None:
        never_seen = integer("clients", clients, low=len(distinct), high_name="clients in the file") - len(distinct)
        return (*sorted(distinct), *(f"never seen {number + 1}" for number in range(never_seen)))
    return tuple(sorted(distinct, key=lambda name: (int(name), name))) if numbered else tuple(sorted(distinct))


def in_seconds(path: Path, times: list[float]) -> list[float]:
    """Times in seconds, if they can only be times since 1970 in a smaller unit; otherwise unchanged."""
    unit, per_second = unit_since_1970(min(times))
    if unit:
        warnings.warn(f"{path}: the times are {unit} since 1970; round_length is in seconds", stacklevel=3)
        return [time / per_second for time in times]
    return times


def unit_since_1970(time: float) -> tuple[str, float]:
    """The unit of a number that can only be a time since 1970 in a unit below seconds, and how many are a second.

    >>> unit_since_1970(1.7e12), unit_since_1970(1.7e9)
    (('milliseconds', 1000.0), ('', 1.0))
    """
    return next((unit for smallest, unit in _UNITS.items() if time >= smallest), ("", 1.0))
