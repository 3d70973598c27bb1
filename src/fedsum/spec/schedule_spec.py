"""Schedules in settings files. Parsing reads a trace, in order to check it, but calls no user's function."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..base.checks import InputError, integer, nearest, settings_of
from ..base.registry import build, refuse_digest, registered, split
from ..base.toml_values import DIGEST, Table, plain
from ..participation import (
    SCHEDULES,
    Asynchronous,
    Availability,
    Devices,
    Explicit,
    Sampled,
    Schedule,
    Trace,
    as_ids,
    refuse_short,
)
from .algorithm_spec import function_or_value, object_fields
from .imported import absolute, check_arguments, import_path, imported
from .task_fingerprint import add_to_digest

Recorded = Trace | Availability
_RECORDED: dict[str, type[Recorded]] = {"Trace": Trace, "Availability": Availability}
"""the schedules that are read from a file"""
NAMED_SCHEDULES: dict[str, type[Any]] = {**SCHEDULES, "Explicit": Explicit, "Sampled": Sampled, **_RECORDED}
_AVAILABILITY = "availability"
"""the field of Sampled that is a schedule itself"""
_DEVICES = "devices"
"""the field of Asynchronous that is a table"""


@dataclass(frozen=True)
class ScheduleSpec:
    """A name and fields; `n` is the task's number of clients, or None until it is known."""

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    n: int | None = None

    @classmethod
    def parse(cls, table: Any, n: int | None = None) -> "ScheduleSpec":
        """From a name, or a table with a name and fields; `dump` is the inverse.

        Args:
          n: the task's number of clients, if known. A table may omit `n`, but not contradict it.
        """
        name, fields = split("schedule", table)
        table_n = fields.pop("n", None)
        if table_n is not None:
            integer("schedule.n", table_n, low=1)
            if n not in (None, table_n):
                raise InputError("schedule.n", table_n, f"the task has {n} clients")
        n = n if table_n is None else table_n
        kind = registered(_RECORDED, name)
        if kind:
            recorded = _read_recorded(kind, fields)
            return _recorded_spec(recorded).with_clients(recorded.n if n is None else n)
        refuse_digest("schedule", fields)
        if ":" in name:
            check_arguments(f"schedule {name}", imported("schedule", name), {"n": n, **fields})
            return cls(absolute(name), fields, n)
        spelling = registered(NAMED_SCHEDULES, name)
        if spelling is None:
            raise InputError("schedule", name, nearest(name, NAMED_SCHEDULES))
        spec = cls(spelling, _defaults(NAMED_SCHEDULES[spelling]) | fields, n)
        if spelling == Sampled.__name__:
            spec = spec._with_availability()
            n = spec.n
        if spelling == Asynchronous.__name__ and _DEVICES in fields:
            fields[_DEVICES] = Devices.parse(fields[_DEVICES]).dump()
            spec = replace(spec, fields={**spec.fields, _DEVICES: fields[_DEVICES]})
        if n is None:  # values are checked when the task is made
            own_n = {} if spelling == Sampled.__name__ else {"n": n}
            check_arguments(f"schedule {spelling}", NAMED_SCHEDULES[spelling], {**own_n, **fields})
        else:
            spec.make(n)
        return spec

    @classmethod
    def of(cls, schedule: Schedule, rounds: int, seed: int) -> "ScheduleSpec":
        """From a schedule object: its fields, or else a digest of its active clients."""
        if isinstance(schedule, Recorded):
            return _recorded_spec(schedule)
        if isinstance(schedule, Sampled):
            inner = cls.of(schedule.availability, rounds, seed)
            fields = {"size": schedule.size, "order": schedule.order, "oversample": schedule.oversample}
            return cls(Sampled.__name__, {_AVAILABILITY: inner.dump(), **fields}, inner.n)
        if hasattr(schedule, "__dataclass_fields__"):
            registered_name = next((name for name, kind in NAMED_SCHEDULES.items() if kind is type(schedule)), None)
            own_fields = object_fields(schedule, rounds)
            if isinstance(schedule, Asynchronous):
                own_fields[_DEVICES] = schedule.devices.dump()
            n = int(own_fields.pop("n", schedule.n))
            return cls(registered_name or import_path(type(schedule)), own_fields, n)
        digest = hashlib.sha256()
        for t in range(rounds):
            add_to_digest(
                digest, as_ids(f"schedule.active(seed={seed}, round={t})", schedule.active(seed, t), schedule.n)
            )
        return cls(import_path(type(schedule)), {DIGEST: digest.hexdigest()}, int(schedule.n))

    def _with_availability(self) -> "ScheduleSpec":
        """This spec of a Sampled with its availability parsed."""
        if _AVAILABILITY not in self.fields:
            raise InputError(f"schedule.{_AVAILABILITY}", None, "is required: a schedule, as a table with a name")
        inner = ScheduleSpec.parse(self.fields[_AVAILABILITY], self.n)
        return replace(self, fields={**self.fields, _AVAILABILITY: inner.dump()}, n=inner.n)

    def dump(self) -> Table:
        return {"name": self.name, **({} if self.n is None else {"n": self.n}), **self.fields}

    def with_clients(self, n: int) -> "ScheduleSpec":
        """This spec for a task of n clients."""
        if self.n not in (None, n):
            if self.name in _RECORDED:
                raise self._other_clients(n)
            raise InputError("schedule.n", self.n, f"the task has {n} clients")
        spec = replace(self, n=int(n))
        return spec._with_availability() if self.name == Sampled.__name__ else spec

    def _other_clients(self, n: int) -> InputError:
        """The error for a recorded schedule and a task of n clients."""
        assert self.n is not None
        more = f"add clients = {n} to the schedule if the others are never active, or " if n > self.n else ""
        accepted = f"it has {self.n} clients and the task {n}: {more}choose a task with {self.n} clients"
        return InputError("schedule.path", self.fields.get("path"), accepted)

    def refuse_short(self, rounds: int) -> None:
        """Refuses a recorded schedule with fewer rounds than the run, as far as it can be made without the task."""
        if self.name == Sampled.__name__:
            ScheduleSpec.parse(self.fields[_AVAILABILITY], self.n).refuse_short(rounds)
        elif self.name in (*_RECORDED, Explicit.__name__) and self.n is not None:
            refuse_short(self.make(self.n), rounds)

    def make(self, n: int) -> Schedule:
        """The schedule for n clients."""
        with settings_of("schedule", {name: name for name in ("n", *self.fields)}):
            return self._made(n)

    def _made(self, n: int) -> Schedule:
        if self.name in _RECORDED:
            return _read_recorded(self.name, dict(self.fields))
        refuse_digest("schedule", self.fields)
        if self.name == Sampled.__name__:
            inner = ScheduleSpec.parse(self.fields[_AVAILABILITY], n).make(n)
            return build("schedule", NAMED_SCHEDULES, self.name, {**self.fields, _AVAILABILITY: inner})  # type: ignore[no-any-return]
        if self.name == Asynchronous.__name__ and _DEVICES in self.fields:
            devices = Devices.parse(self.fields[_DEVICES])
            return build("schedule", NAMED_SCHEDULES, self.name, {"n": n, **self.fields, _DEVICES: devices})  # type: ignore[no-any-return]
        fields = {key: function_or_value(f"schedule.{key}", value) for key, value in self.fields.items()}
        if ":" not in self.name:
            return build("schedule", NAMED_SCHEDULES, self.name, {"n": n, **fields})  # type: ignore[no-any-return]
        schedule = imported("schedule", self.name)(n=n, **fields)
        if not all(hasattr(schedule, member) for member in ("n", "active", "describe")):
            raise InputError("schedule", self.name, "a class with n, active(seed, round) and describe(rounds)")
        return schedule  # type: ignore[no-any-return]


def _read_recorded(kind: str, fields: Table) -> Recorded:
    recorded_digest = fields.pop(DIGEST, None)
    if not isinstance(fields.get("path"), str):
        raise InputError("schedule.path", fields.get("path"), "the name of a trace file, such as seen.csv")
    check_arguments(f"schedule {kind}", _RECORDED[kind].read, fields)
    complete = {"round_length": None, "clients": None, "repeat": False, **fields}
    complete["path"] = os.path.abspath(fields["path"])
    recorded = _cached(kind, json.dumps(complete, sort_keys=True, default=str), _stamp(fields["path"]))
    if recorded_digest not in (None, _recorded_digest(recorded)):
        raise InputError("schedule.path", fields["path"], "the trace has changed since this run began")
    return recorded


@lru_cache(maxsize=4)
def _cached(kind: str, fields: str, stamp: tuple[int, int]) -> Recorded:
    """Cached, so that parsing and running read the file once; `stamp` changes with the file."""
    return _RECORDED[kind].read(**json.loads(fields))


def _stamp(path: str) -> tuple[int, int]:
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return 0, 0  # reading the file raises the error
    return status.st_mtime_ns, status.st_size


def _recorded_spec(recorded: Recorded) -> ScheduleSpec:
    fields = {**plain(dict(recorded.source or {}), 0), DIGEST: _recorded_digest(recorded)}
    return ScheduleSpec(type(recorded).__name__, fields, recorded.n)


def _recorded_digest(recorded: Recorded) -> str:
    digest = hashlib.sha256()
    if isinstance(recorded, Trace):
        for ids in recorded.recorded.sets:
            add_to_digest(digest, ids)
    else:
        add_to_digest(digest, [recorded.n, recorded.rounds, recorded.repeat, *recorded.index.spans])
    return digest.hexdigest()


def _defaults(cls: type[Any]) -> Table:
    return {
        option.name: option.default
        for option in dataclasses.fields(cls)
        if option.init and option.default not in (dataclasses.MISSING, None)
    }
