"""A run's settings as a file says them: typed, checked, complete.

    rounds = 2000
    local_steps = 10
    eta_l = {name = "InverseSqrt", eta_0 = 0.01}
    task = {name = "mnist", clients = 100, alpha = 0.1}
    algorithm = "FedSUM"
    schedule = {name = "Uniform", size = 20}

`include` names files whose settings come first. Keys with dots, as `--set` takes them, reach into tables.
"""

import copy
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from ..algorithms import Algorithm
from ..base.checks import InputError, integer, nearest
from ..participation import Schedule
from ..tasks import BaseTask
from ..training.options import DTYPES, Options
from . import recipes
from .recipes import Table

PARTS = ("task", "algorithm", "schedule")
KEYS = (*PARTS, *(field.name for field in fields(Options)))
SWEEP = "sweep"
"""lists of values, every combination a run"""
ENVIRONMENT = "environment"
"""what a run's folder notes besides, and nobody has to repeat"""
_DEEPEST = 8


@dataclass(frozen=True)
class Config:
    """Everything that is needed to begin a run, checked as far as it can be without loading data."""

    task: Table
    algorithm: Algorithm
    schedule: Table
    options: Options

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> "Config":
        """From a table as a file holds it."""
        for key in table:
            if key not in (*KEYS, ENVIRONMENT):
                raise InputError(key, table[key], f"no such setting; {nearest(key, KEYS)}")
        missing = [key for key in PARTS if key not in table]
        given = {key: value for key, value in table.items() if key not in (*PARTS, ENVIRONMENT)}
        missing += [key for key in ("rounds", "local_steps", "eta_l") if key not in given]
        if missing:
            raise InputError(missing[0], None, "is required")
        rounds = given["rounds"] if isinstance(given["rounds"], int) else 0  # else Options refuses it
        given["eta_l"] = recipes.to_rate(given["eta_l"], rounds)
        if "dtype" in given:
            given["dtype"] = _dtype(given["dtype"])
        config = cls(table["task"], recipes.to_algorithm(table["algorithm"]), table["schedule"], Options(**given))
        n = recipes.clients_of(config.task)
        if n is not None:
            recipes.to_schedule(config.schedule, integer("task: clients", n, low=1))
        return config

    def table(self, n: int) -> Table:
        """What `described` would say of the run, without making its task of n clients."""
        schedule = self.make_schedule(n)
        return _described(recipes.complete_task(self.task), self.algorithm, schedule, self.options)

    def make_task(self) -> BaseTask:
        return recipes.to_task(self.task)

    def make_schedule(self, n: int) -> Schedule:
        return recipes.to_schedule(self.schedule, n)


def described(task: BaseTask, algorithm: Algorithm, schedule: Schedule, options: Options) -> Table:
    """The table of a run that was put together in Python: what its folder keeps, and compares."""
    return _described(recipes.of_task(task), algorithm, schedule, options)


def _described(task: Table, algorithm: Algorithm, schedule: Schedule, options: Options) -> Table:
    table: Table = {}
    for field in fields(options):
        value = getattr(options, field.name)
        if isinstance(value, torch.dtype | torch.device):
            value = str(value).removeprefix("torch.")
        if field.name == "eta_l":
            value = recipes.of_rate(value, options.rounds)
        if value is not None:
            table[field.name] = value
    table["task"] = task
    table["algorithm"] = recipes.of_algorithm(algorithm, options.rounds)
    table["schedule"] = recipes.of_schedule(schedule, options.rounds, options.seed)
    return table


def read(path: Path) -> Table:
    """A TOML file with what it includes; paths in `include` are relative to the file."""
    return _read(Path(path), 0)


def _read(path: Path, depth: int) -> Table:
    if depth > _DEEPEST:
        raise InputError("include", str(path), f"files included no deeper than {_DEEPEST}")
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise InputError("file", str(path), f"a TOML file that can be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError("file", str(path), f"valid TOML ({error})") from error
    included = table.pop("include", [])
    merged: Table = {}
    names = [included] if isinstance(included, str) else included
    if not isinstance(names, list) or not all(isinstance(name, str) and "\0" not in name for name in names):
        raise InputError("include", included, "a file name, or a list of them")
    for name in names:
        merged = overlaid(merged, _read(path.parent / name, depth + 1))
    return overlaid(merged, table)


def overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> Table:
    """`below` with what `above` says; a table with another `name` replaces the one below, else they are joined."""
    joined = copy.deepcopy(dict(below))
    for key, value in above.items():
        under = joined.get(key)
        if isinstance(value, Mapping) and isinstance(under, Mapping) and value.get("name") in (None, under.get("name")):
            joined[key] = overlaid(under, value)
        else:
            joined[key] = copy.deepcopy(value)
    return joined


def assigned(table: Mapping[str, Any], key: str, value: Any) -> Table:
    """`table` with one setting changed; dots in the key reach into tables, unless they are quoted as in TOML.

    >>> assigned({"task": "mnist"}, "task.alpha", 0.5)
    {'task': {'name': 'mnist', 'alpha': 0.5}}
    """
    changed = copy.deepcopy(dict(table))
    inside, (*path, last) = changed, _path(key)
    for part in path:
        under = inside.get(part, {})
        under = {"name": under} if isinstance(under, str) else under
        if not isinstance(under, dict):
            raise InputError(key, value, f"{part} is not a table")
        inside[part] = under
        inside = under
    inside[last] = value
    return changed


def _path(key: str) -> list[str]:
    """The names of a TOML key, from the outside in."""
    try:
        inside: Any = tomllib.loads(f"{key} = 0")
    except (tomllib.TOMLDecodeError, RecursionError):
        raise InputError("key", key, 'names with dots between them, as in task.alpha or sweep."task.name"') from None
    path = []
    while isinstance(inside, dict) and len(inside) == 1:
        [(name, inside)] = inside.items()
        path.append(name)
    if not path:
        raise InputError("key", key, "a name")
    return path


def with_settings(table: Mapping[str, Any], settings: Sequence[str]) -> Table:
    """`table` with settings as `--set` gives them: KEY=VALUE, the value in TOML or plain text."""
    changed = dict(table)
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise InputError("--set", setting, "KEY=VALUE, as in --set eta_g=0.5")
        _refuse_swept(changed, key.strip(), text.strip())
        changed = assigned(changed, key.strip(), _value(text.strip()))
    return changed


def _refuse_swept(table: Mapping[str, Any], key: str, text: str) -> None:
    """A setting that every run of the sweep would overwrite is not one that was changed."""
    axes = table.get(SWEEP)
    for axis in axes if isinstance(axes, Mapping) else ():
        for name in (each.strip() for each in axis.split(",")):
            if key == name or key.startswith(f"{name}."):
                way = f"--set 'sweep.{name if name == axis and '.' not in axis else json.dumps(axis)}=[...]'"
                raise InputError(key, text, f"the sweep has values of its own for {name}; change them with {way}")


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def _dtype(name: Any) -> torch.dtype:
    if not isinstance(name, str) or name not in DTYPES:
        raise InputError("dtype", name, nearest(str(name), DTYPES))
    return DTYPES[name]
