"""Tasks, algorithms, schedules and rates as plain tables that a TOML file can hold, and back.

A table says `name` and fields. What is too large to be written down, or has no name, is recorded by a digest: it can
be compared with what a script brings again, but not rebuilt from the file alone.
"""

import dataclasses
import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..algorithms import ALGORITHMS, Algorithm
from ..base.checks import InputError, nearest, real
from ..base.registry import build
from ..participation import SCHEDULES, Explicit, Schedule, Trace
from ..tasks import BaseTask, Quadratic, Task, vision
from ..tasks.data import SOURCES
from ..training.rates import RATES, InverseSqrt, PerRound
from .imported import from_anywhere, imported, where

Table = dict[str, Any]
_MOST_NUMBERS = 10_000
"""that are written into a file; beyond it a digest stands for them"""
_SCRIPT = "is recorded by a digest only: call simulate(folder=...) from the script that began this run"
TASKS: dict[str, Callable[..., BaseTask]] = {"quadratic": Quadratic.random} | dict.fromkeys(
    (*SOURCES, "digits"), vision
)
_DRAWN = ("dirichlet", "class_dirichlet", "iid", "shards")
"""partitions with as many clients as are asked for"""
_ALL_SCHEDULES: dict[str, type[Any]] = {**SCHEDULES, "Explicit": Explicit}


# From objects to tables.


def of_task(task: BaseTask) -> Table:
    recipe: Table | None = getattr(task, "recipe", None)
    if recipe:
        return {key: _plain(value, 0) for key, value in recipe.items() if value is not None}
    data = hashlib.sha256()
    if isinstance(task, Task):
        tensors = [task.inputs, task.targets, *(task.test_data or ())]
        tensors += [torch.from_numpy(part) for part in task.partition.parts]
        for tensor in (*tensors, task.init(0)):
            _digest(data, tensor)
        _digest(data, task.augment)
        for value in (task.gradient_norm, task._training, task._scale64):
            _digest(data, value)
        for function in (task.loss, task.prepare):
            _digest(data, _code(function))
    else:
        _digest(data, task.init(0))
        for name, value in sorted(vars(task).items()):
            _digest(data, name)
            _digest(data, value if isinstance(value, Tensor | np.ndarray) else _code(value))
    return {"name": _name(type(task), {}), "n": task.n, "sha256": data.hexdigest()}


def of_algorithm(algorithm: Algorithm, rounds: int) -> Table:
    return _of_object(algorithm, ALGORITHMS, rounds)


def of_schedule(schedule: Schedule, rounds: int, seed: int = 0) -> Table:
    recipe: Table | None = getattr(schedule, "recipe", None)
    if recipe:
        return {**_plain(recipe, rounds), "n": schedule.n}
    digest = hashlib.sha256()
    if isinstance(schedule, Trace):
        for ids in schedule.recorded.sets:
            _digest(digest, ids)
        source = _plain(dict(schedule.source or {}), rounds)
        return {"name": "Trace", "n": schedule.n, **source, "sha256": digest.hexdigest()}
    if hasattr(schedule, "__dataclass_fields__"):
        return _of_object(schedule, _ALL_SCHEDULES, rounds)
    for t in range(rounds):  # it has no fields to tell, but what it does
        _digest(digest, np.asarray(schedule.active(seed, t)))
    return {"name": _name(type(schedule), {}), "n": schedule.n, "sha256": digest.hexdigest()}


def of_rate(eta_l: float | Callable[[int], float], rounds: int) -> Any:
    if isinstance(eta_l, InverseSqrt):
        return _of_object(eta_l, RATES, rounds)
    return _plain(eta_l, rounds)


def rate_values(table: Any, rounds: int) -> list[float]:
    """The rate of every round: two rates are the same if these are."""
    rate = to_rate(table)
    return [float(rate(t)) for t in range(rounds)] if callable(rate) else [float(rate)] * rounds


def first_difference(before: Any, now: Any, rounds: int) -> tuple[str, Any, Any] | None:
    """The first round in which two rates differ, and its values."""
    if before == now:
        return None
    tables = [each for each in (before, now) if isinstance(each, Mapping) and "sha256" in each]
    if tables:
        one, other = (_rate_digest(each, rounds) for each in (before, now))
        return None if one == other else ("eta_l", one, other)
    for t, rates in enumerate(zip(rate_values(before, rounds), rate_values(now, rounds), strict=True)):
        if rates[0] != rates[1]:
            return f"eta_l({t})", *rates
    return None


def _rate_digest(table: Any, rounds: int) -> str:
    if isinstance(table, Mapping) and "sha256" in table:
        return str(table["sha256"])
    return _sha256(rate_values(table, rounds))


def _of_object(thing: Any, table: Mapping[str, type], rounds: int) -> Table:
    name = _name(type(thing), table)
    if not dataclasses.is_dataclass(thing):
        return {"name": name, **_plain(vars(thing), rounds)}
    fields = {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing) if field.init}
    return {"name": name, **_plain(fields, rounds)}


def _name(cls: type, table: Mapping[str, type]) -> str:
    """The name in the table, or where to import the class from."""
    known = next((name for name, found in table.items() if found is cls), None)
    return known or where(cls)


def _plain(value: Any, rounds: int) -> Any:
    """`value` in types that TOML has; a function of the round by its values."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each, rounds) for key, each in value.items() if each is not None}
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if callable(value):
        values = [_plain(value(t), rounds) for t in range(rounds)]
        if any(each != values[0] for each in values[1:]):
            return _bounded({"name": "PerRound", "values": values}, values)
        return values[0]
    if isinstance(value, Tensor | np.ndarray):
        return _bounded(value.tolist(), value)
    if isinstance(value, list | tuple | set | frozenset):
        listed = [_plain(each, rounds) for each in (sorted(value) if isinstance(value, set | frozenset) else value)]
        return _bounded(listed, listed)
    return repr(value)


def _bounded(written: Any, values: Any) -> Any:
    values = values.tolist() if isinstance(values, Tensor | np.ndarray) else values
    if json.dumps(values).count(",") < _MOST_NUMBERS:
        return written
    return {"sha256": _sha256(values)}


def _sha256(values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def _code(value: Any) -> str:
    """What a function does, as far as it can be told: two that differ here are not the same."""
    if isinstance(value, functools.partial):
        return f"{_code(value.func)} {value.args!r} {value.keywords!r}"
    code = getattr(value, "__code__", None)
    if code is None:
        return repr(value) if dataclasses.is_dataclass(value) or not callable(value) else str(type(value))
    inside = [_code_text(code), repr(getattr(value, "__defaults__", None))]
    inside += [repr(cell.cell_contents)[:200] for cell in value.__closure__ or ()]
    return " ".join(inside)


def _code_text(code: CodeType) -> str:
    constants = [_code_text(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {constants} {code.co_names}"


def _digest(digest: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        value = value.detach().cpu().contiguous().numpy()
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype} {value.shape};".encode())
        digest.update(np.ascontiguousarray(value).data)
    else:
        digest.update(f"{value!r};".encode())


# From tables to objects.


def to_task(table: Any) -> BaseTask:
    name, fields = _split("task", table)
    _refuse_digest("task", fields)
    make = imported("task", name) if ":" in name else TASKS.get(name)
    if make is None:
        raise InputError("task", name, f"{nearest(name, TASKS)}; or file.py:function")
    arguments = fields if make is not vision else {"name": name, **fields}
    task: BaseTask = _called(f"task {name}", make, arguments)
    if ":" in name:
        if not all(hasattr(task, needed) for needed in ("n", "init", "gradients", "evaluate")):
            raise InputError("task", name, f"a function that returns a task, not {type(task).__name__}")
        task.recipe = {"name": from_anywhere(name), **fields}  # type: ignore[attr-defined]
    return task


def complete_task(table: Any) -> Table:
    """What `of_task` would say of the task, without making it."""
    name, fields = _split("task", table)
    make = TASKS.get(name)
    if make is None:
        return {"name": from_anywhere(name), **fields}
    defaults = {each.name: each.default for each in inspect.signature(make).parameters.values()}
    filled = defaults | {"name": name} | fields
    if make is vision:
        filled["clients"] = clients_of(table)
    return {key: value for key, value in filled.items() if value is not None}


def clients_of(table: Any) -> int | None:
    """N of a task that has not been made yet, where its table says it."""
    name, fields = _split("task", table)
    if TASKS.get(name) is not vision:
        return fields.get("n")
    natural = fields.get("partition", _DRAWN[0]) not in _DRAWN
    return None if natural else fields.get("clients", 100)


def to_algorithm(table: Any) -> Algorithm:
    name, fields = _split("algorithm", table)
    if ":" not in name:
        return build("algorithm", ALGORITHMS, name, fields)
    found = _called(f"algorithm {name}", imported("algorithm", name), fields)
    if not isinstance(found, Algorithm):
        raise InputError("algorithm", name, "a class derived from fedsum.Algorithm")
    return found


def to_schedule(table: Any, n: int) -> Schedule:
    """The schedule for n clients; a table may leave `n` out."""
    name, fields = _split("schedule", table)
    if name.lower() == "trace":
        return _to_trace(fields)
    _refuse_digest("schedule", fields)
    fields = {key: _function_or_value(key, value) for key, value in fields.items()}
    if ":" in name:
        found = _called(f"schedule {name}", imported("schedule", name), {"n": n, **fields})
        if not all(hasattr(found, needed) for needed in ("n", "active", "describe")):
            raise InputError("schedule", name, "a class with n, active(seed, round) and describe(rounds)")
        # Schedules are frozen records.
        object.__setattr__(found, "recipe", {"name": from_anywhere(name), **fields})
        return found  # type: ignore[no-any-return]
    schedule: Schedule = build("schedule", _ALL_SCHEDULES, name, {"n": n, **fields})
    return schedule


def to_rate(table: Any, rounds: int = 0) -> float | Callable[[int], float]:
    """The rate, which must say something of so many rounds."""
    if isinstance(table, list):
        if len(table) < rounds:
            raise InputError("eta_l", f"{len(table)} values", f"a value for each of {rounds} rounds")
        return PerRound([real("eta_l", value, above=0) for value in table])
    if not isinstance(table, Mapping):
        return table  # type: ignore[no-any-return]  # a number, or what Options refuses
    _refuse_digest("eta_l", table)
    name, fields = _split("eta_l", table)
    return build("eta_l", RATES, name, fields)  # type: ignore[no-any-return]


def _to_trace(fields: Table) -> Trace:
    wanted = fields.pop("sha256", None)
    fields.pop("n", None)  # it follows from the file and its clients
    if not isinstance(fields.get("path"), str):
        raise InputError("schedule.path", fields.get("path"), "the name of a .csv or .parquet file")
    trace: Trace = _called("schedule trace", Trace.read, fields)
    if wanted and of_schedule(trace, 0)["sha256"] != wanted:
        raise InputError("schedule.path", fields["path"], "the trace has changed since this run began")
    return trace


def _function_or_value(key: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    _refuse_digest(f"schedule.{key}", value)
    return to_rate(value)


def _split(kind: str, table: Any) -> tuple[str, Table]:
    table = {"name": table} if isinstance(table, str) else table
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise InputError(kind, table, "a name, or a table with a name and fields")
    return table["name"], {key: value for key, value in table.items() if key != "name"}


def _refuse_digest(field: str, fields: Mapping[str, Any]) -> None:
    if "sha256" in fields:
        raise InputError(field, fields["sha256"], _SCRIPT)


def _called(what: str, make: Callable[..., Any], arguments: Table) -> Any:
    """`make(**arguments)`, with what it does not take refused by name."""
    known = inspect.signature(make).parameters
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values())
    for given, value in arguments.items():
        if given not in known and not takes_any:
            raise InputError(f"{what}: {given}", value, f"no such field; {nearest(given, known)}")
    for each in known.values():
        if each.default is each.empty and each.name not in arguments and each.kind is not inspect.Parameter.VAR_KEYWORD:
            raise InputError(f"{what}: {each.name}", None, "is required")
    return make(**arguments)
