"""The schedule of `fedsum delays`: a pattern by name, a trace file, or a class in a user's file."""

import dataclasses
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..base.checks import InputError, nearest
from ..base.registry import build, registered
from ..participation import SCHEDULES, TRACE_FILES, Schedule, Trace, is_trace_file
from ..spec import ScheduleSpec
from .console import err

# Fields of the patterns by default: the paper's setting, and a Markov chain with the same mean participation.
_DEFAULTS = {"n": 100, "size": 20, "p": 0.2, "on": 0.9, "off": 0.975, "groups": 5, "dwell": 10}
_TRACE_ARGUMENTS = ("round_length", "client_column", "time_column")


def schedule_argument(pattern: str, fields: Mapping[str, Any]) -> tuple[Schedule, str]:
    """The schedule of the command line, and its title. `fields` are the given options, by name."""
    given = {name: value for name, value in fields.items() if value is not None}
    if is_trace_file(pattern):
        return _trace(pattern, given), pattern
    for name in _TRACE_ARGUMENTS:
        if name in given:
            raise InputError(name.replace("_", "-"), given[name], "only for a trace file")
    if ":" in pattern:
        n = given.pop("n", _DEFAULTS["n"])
        return ScheduleSpec.parse({"name": pattern, **given}, n).make(n), pattern
    spelling = registered(SCHEDULES, pattern)
    if spelling is None:
        hint = nearest(pattern.lower(), [name.lower() for name in SCHEDULES])
        accepted = f"{hint}, file.py:Class, or a trace ending in {', '.join(TRACE_FILES)}"
        raise InputError("pattern", pattern, accepted)
    cls: Any = SCHEDULES[spelling]
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    schedule = build("pattern", SCHEDULES, pattern, {k: v for k, v in _DEFAULTS.items() if k in names} | given)
    return schedule, repr(schedule)


def _trace(path: str, given: dict[str, Any]) -> Trace:
    for name, value in given.items():
        if name not in ("n", *_TRACE_ARGUMENTS):
            accepted = "not for a trace, which takes only n, round-length, client-column and time-column"
            raise InputError(name, value, accepted)
    arguments: dict[str, Any] = {name: given.get(name) for name in _TRACE_ARGUMENTS}
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        trace = Trace.read(Path(path), clients=given.get("n"), **arguments)
    for note in notes:
        err.print(f"note: {note.message}", soft_wrap=True, highlight=False, markup=False)
    return trace
