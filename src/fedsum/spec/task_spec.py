"""Tasks in settings files. Nothing is loaded until the task is made."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..base.checks import InputError, integer, nearest, settings_of
from ..base.registry import refuse_digest, registered, split
from ..base.toml_values import Table, plain
from ..tasks import IMAGE_SETS, TEXT_SETS, BaseTask, Quadratic, text, vision
from .imported import absolute, check_arguments, import_path, imported
from .task_fingerprint import task_fingerprint

TASKS: dict[str, Callable[..., BaseTask]] = {
    "quadratic": Quadratic.random,
    **dict.fromkeys(IMAGE_SETS, vision),
    **dict.fromkeys(TEXT_SETS, text),
}
_CLIENTS: dict[Callable[..., BaseTask], int] = {vision: 100, text: 8}
"""the number of clients by default, of the functions that take the name of a data set"""
_DRAWN = ("dirichlet", "class_dirichlet", "iid", "shards")
"""partitions into a given number of clients; all others have one client per value of a column"""


@dataclass(frozen=True)
class TaskSpec:
    """A name and all fields of the task, including defaults."""

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, table: Any) -> "TaskSpec":
        """From a name, or a table with a name and fields; `dump` is the inverse."""
        name, fields = split("task", table)
        refuse_digest("task", fields)
        if ":" in name:
            check_arguments(f"task {name}", imported("task", name), fields)
            return cls(absolute(name), fields)
        spelling = registered(TASKS, name)
        if spelling is None:
            raise InputError("task", name, f"{nearest(name, TASKS)}; or file.py:function")
        make = TASKS[spelling]
        check_arguments(f"task {spelling}", make, {"name": spelling, **fields} if make in _CLIENTS else fields)
        defaults = {parameter.name: parameter.default for parameter in inspect.signature(make).parameters.values()}
        complete = {key: value for key, value in (defaults | fields).items() if key != "name"}
        if make in _CLIENTS and complete["clients"] is None and complete["partition"] in _DRAWN:
            complete["clients"] = _CLIENTS[make]
        # TOML has no tuples and no None.
        values = {key: list(value) if isinstance(value, tuple) else value for key, value in complete.items()}
        return cls(spelling, {key: value for key, value in values.items() if value is not None})

    @classmethod
    def of(cls, task: BaseTask) -> "TaskSpec":
        """From a task object: the settings that made it, or else its fingerprint."""
        source = getattr(task, "source", None)
        if source:
            return cls.parse({key: plain(value, 0) for key, value in source.items() if value is not None})
        return cls(import_path(type(task)), task_fingerprint(task))

    def dump(self) -> Table:
        return {"name": self.name, **self.fields}

    @property
    def clients(self) -> int | None:
        """N, or None if the settings do not give it."""
        if self.name not in TASKS:
            return None
        field = "clients" if TASKS[self.name] in _CLIENTS else "n"
        n = self.fields.get(field)
        return None if n is None else integer(f"task.{field}", n, low=1)

    def make(self) -> BaseTask:
        refuse_digest("task", self.fields)
        if ":" in self.name:
            task: BaseTask = imported("task", self.name)(**self.fields)
            if not all(hasattr(task, member) for member in ("n", "init", "gradients", "evaluate")):
                raise InputError("task", self.name, f"a function that returns a task, not {type(task).__name__}")
            return task
        make = TASKS[self.name]
        names = {name: name for name in self.fields}
        if make not in _CLIENTS:
            with settings_of("task", names):
                return make(**self.fields)
        with settings_of("task", {"n": "clients"} | names):
            return make(self.name, **self.fields)
