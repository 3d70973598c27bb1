"""Registries: objects that a command line or a file gives by name."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from .checks import InputError, nearest
from .toml_values import DIGEST

T = TypeVar("T")

SCRIPT_ONLY = "is recorded by a digest only: call simulate(folder=...) from the script that started this run"
"""the error message for a setting that a file cannot hold"""


def registered(names: Mapping[str, T], name: str) -> str | None:
    """The registered spelling of a name, or None. Letter case, hyphens and underscores do not matter.

    >>> registered({"FedSUMCR": 1}, "fedsum-cr")
    'FedSUMCR'
    """
    return next((spelling for spelling in names if _letters(spelling) == _letters(name)), None)


def split(kind: str, table: Any) -> tuple[str, dict[str, Any]]:
    """The name and the fields of an object that a file gives as a name, or as a table with a name and fields."""
    table = {"name": table} if isinstance(table, str) else table
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise InputError(kind, table, "a name, or a table with a name and fields")
    return table["name"], {key: value for key, value in table.items() if key != "name"}


def refuse_digest(field: str, table: Any) -> None:
    """Refuses a setting that is recorded by a digest only, because a file cannot hold it."""
    if isinstance(table, Mapping) and DIGEST in table:
        raise InputError(field, table[DIGEST], SCRIPT_ONLY)


def build(kind: str, classes: Mapping[str, type[T]], name: str, fields: Mapping[str, Any]) -> T:
    """`classes[name](**fields)`. Letter case, hyphens and underscores in the name do not matter.

    >>> from fedsum.participation import SCHEDULES
    >>> build("schedule", SCHEDULES, "uniform", {"n": 10, "size": 2})
    Uniform(n=10, size=2)
    """
    spelling = registered(classes, name)
    if spelling is None:
        raise InputError(kind, name, nearest(name, classes))
    cls = classes[spelling]
    accepted = [field for field in dataclasses.fields(cls) if field.init]  # type: ignore[arg-type]
    names = [field.name for field in accepted]
    for key, value in fields.items():
        if key not in names:
            raise InputError(f"{cls.__name__}.{key}", value, f"no such field; {nearest(key, names)}")
    for field in accepted:
        if field.default is field.default_factory is dataclasses.MISSING and field.name not in fields:
            raise InputError(f"{cls.__name__}.{field.name}", None, f"is required by {cls.__name__}")
    return cls(**fields)


def _letters(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
