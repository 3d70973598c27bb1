"""Objects by name: what a command line or a file can say."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from .checks import InputError, nearest
from .plain import DIGEST

T = TypeVar("T")

SCRIPT_ONLY = "is recorded by a digest only: call simulate(folder=...) from the script that began this run"
"""what to say of a setting that a file cannot hold"""


def registered(names: Mapping[str, T], name: str) -> str | None:
    """The registered spelling of a name; letter case, hyphens and underscores do not matter.

    >>> registered({"FedSUMCR": 1}, "fedsum-cr")
    'FedSUMCR'
    """
    return next((known for known in names if _letters(known) == _letters(name)), None)


def split(kind: str, table: Any) -> tuple[str, dict[str, Any]]:
    """The name and the fields of an object as a file says it: a name, or a table with a name and fields."""
    table = {"name": table} if isinstance(table, str) else table
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise InputError(kind, table, "a name, or a table with a name and fields")
    return table["name"], {key: value for key, value in table.items() if key != "name"}


def refuse_digest(field: str, table: Any) -> None:
    """Refuses what is recorded by a digest only, because a file cannot hold it."""
    if isinstance(table, Mapping) and DIGEST in table:
        raise InputError(field, table[DIGEST], SCRIPT_ONLY)


def build(kind: str, table: Mapping[str, type[T]], name: str, fields: Mapping[str, Any]) -> T:
    """`table[name](**fields)`; letter case, hyphens and underscores in the name do not matter.

    >>> from fedsum.participation import SCHEDULES
    >>> build("schedule", SCHEDULES, "uniform", {"n": 10, "size": 2})
    Uniform(n=10, size=2)
    """
    known = registered(table, name)
    if known is None:
        raise InputError(kind, name, nearest(name, table))
    cls = table[known]
    accepted = [field for field in dataclasses.fields(cls) if field.init]  # type: ignore[arg-type]
    names = [field.name for field in accepted]
    for given, value in fields.items():
        if given not in names:
            raise InputError(f"{cls.__name__}.{given}", value, f"no such field; {nearest(given, names)}")
    for field in accepted:
        if field.default is field.default_factory is dataclasses.MISSING and field.name not in fields:
            raise InputError(f"{cls.__name__}.{field.name}", None, f"is required by {cls.__name__}")
    return cls(**fields)


def _letters(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
