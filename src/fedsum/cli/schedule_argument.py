"""The schedule of `fedsum delays`: a pattern by name, a trace file, a settings file, or a class in a user's file."""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.checks import InputError, nearest
from ..base.registry import build, registered
from ..participation import (
    SCHEDULES,
    TRACE_FILES,
    Availability,
    Devices,
    LogUniform,
    Sampled,
    Schedule,
    Trace,
    has_intervals,
    is_trace_file,
)
from ..runs import expand
from ..spec import ScheduleSpec, read_settings
from ..training import mean_steps, step_counts
from .console import err

# Fields of the patterns by default: the paper's setting, and a Markov chain with the same mean participation.
_DEFAULTS: dict[str, Any] = {
    "n": 100,
    "size": 20,
    "p": 0.2,
    "on": 0.9,
    "off": 0.975,
    "groups": 5,
    "dwell": 10,
    "separation": 4,
}
_DEFAULTS |= {"peak": 0.35, "trough": 0.05, "period": 48, "zones": 1}
_DEFAULTS |= {"devices": Devices(seconds_per_step=LogUniform(1, 10)), "buffer": 10}
_TRACE_ARGUMENTS = ("round_length", "client_column", "time_column")
_SAMPLED_ARGUMENTS = ("size", "order")
"""options that choose some of the recorded clients"""
_INTERVAL_ARGUMENTS = ("offset", "cover", "start_column", "end_column")


@dataclasses.dataclass(frozen=True)
class ScheduleArgument:
    """The schedule of the command line."""

    schedule: Schedule
    title: str
    names: Sequence[str] | None = None
    """of the clients, in the order of their ids"""
    local_steps: int | None = None
    """K of a settings file"""
    rounds: int | None = None
    """of a settings file"""


def schedule_argument(pattern: str, fields: Mapping[str, Any]) -> ScheduleArgument:
    """`fields` are the given options, by name."""
    given = {name: value for name, value in fields.items() if value is not None}
    if is_trace_file(pattern):
        schedule = _recorded(pattern, given)
        return ScheduleArgument(schedule, pattern, _recorded_names(schedule))
    if pattern.endswith(".toml"):
        return _of_settings(pattern, given)
    for name in (*_TRACE_ARGUMENTS, *_INTERVAL_ARGUMENTS, "order"):
        if name in given:
            raise InputError(name.replace("_", "-"), given[name], "only for a trace file")
    if ":" in pattern:
        n = given.pop("n", _DEFAULTS["n"])
        return ScheduleArgument(ScheduleSpec.parse({"name": pattern, **given}, n).make(n), pattern)
    spelling = registered(SCHEDULES, pattern)
    if spelling is None:
        hint = nearest(pattern.lower(), [name.lower() for name in SCHEDULES])
        accepted = (
            f"{hint}, file.py:Class, a settings file ending in .toml, or a trace ending in {', '.join(TRACE_FILES)}"
        )
        raise InputError("pattern", pattern, accepted)
    cls: Any = SCHEDULES[spelling]
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    schedule = build("pattern", SCHEDULES, pattern, {k: v for k, v in _DEFAULTS.items() if k in names} | given)
    return ScheduleArgument(schedule, repr(schedule))


def _of_settings(path: str, given: Mapping[str, Any]) -> ScheduleArgument:
    """The schedule of a run, or of a sweep's first run."""
    for name, value in given.items():
        raise InputError(name.replace("_", "-"), value, f"not together with a settings file: change it in {path}")
    spec = expand(read_settings(Path(path)), Path())[0].spec
    # Image sets are large, so the task is made only if the schedule or K needs it.
    task = spec.task.make() if spec.schedule.n is None or spec.options.local_steps is None else None
    n = spec.schedule.n if task is None else task.n
    assert n is not None
    schedule = spec.schedule.make(n)
    return ScheduleArgument(
        schedule,
        f"{spec.schedule.name} of {path}",
        _recorded_names(schedule) or getattr(task, "client_names", None),
        spec.options.local_steps if task is None else round(mean_steps(step_counts(task, spec.options))),
        spec.options.rounds,
    )


def _recorded_names(schedule: Schedule) -> Sequence[str] | None:
    recorded = schedule.availability if isinstance(schedule, Sampled) else schedule
    return recorded.names if isinstance(recorded, Trace | Availability) else None


def _recorded(path: str, given: Mapping[str, Any]) -> Schedule:
    """All recorded clients, or with --size some of them."""
    recorded = read_trace(path, {name: value for name, value in given.items() if name not in _SAMPLED_ARGUMENTS})
    if "size" not in given:
        if "order" in given:
            raise InputError("order", given["order"], "only together with size")
        return recorded
    return Sampled(recorded, given["size"], given.get("order", "uniform"))


def read_trace(path: str, given: Mapping[str, Any]) -> Trace | Availability:
    """A trace, or intervals as an Availability. `given` are the options by name; warnings are printed as notes."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        intervals = has_intervals(Path(path), given.get("start_column"), given.get("end_column"))
        accepted = (*_TRACE_ARGUMENTS[:2], *_INTERVAL_ARGUMENTS) if intervals else _TRACE_ARGUMENTS
        for name, value in given.items():
            if name not in ("n", *accepted):
                options = ", ".join(name.replace("_", "-") for name in ("n", *accepted, *_SAMPLED_ARGUMENTS))
                kind = "intervals, which take" if intervals else "a trace, which takes"
                raise InputError(name.replace("_", "-"), value, f"not for {kind} only {options}")
        arguments = {name: value for name, value in given.items() if name != "n"}
        read = Availability.read if intervals else Trace.read
        recorded = read(Path(path), clients=given.get("n"), **arguments)
    for note in notes:
        err.print(f"note: {note.message}", soft_wrap=True, highlight=False, markup=False)
    return recorded
