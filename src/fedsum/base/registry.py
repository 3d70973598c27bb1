"""An object by the name of its class and its fields: what a command line or a file can say."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from .checks import InputError, nearest

T = TypeVar("T")


def build(kind: str, table: Mapping[str, type[T]], name: str, fields: Mapping[str, Any]) -> T:
    """`table[name](**fields)`; letter case and hyphens in the name do not matter.

    >>> from fedsum.participation import SCHEDULES
    >>> build("schedule", SCHEDULES, "uniform", {"n": 10, "size": 2})
    Uniform(n=10, size=2)
    """
    plain = {key.lower(): cls for key, cls in table.items()}
    cls = plain.get(name.lower().replace("-", "").replace("_", ""))
    if cls is None:
        raise InputError(kind, name, nearest(name, table))
    accepted = [field for field in dataclasses.fields(cls) if field.init]  # type: ignore[arg-type]
    names = [field.name for field in accepted]
    for given, value in fields.items():
        if given not in names:
            raise InputError(f"{cls.__name__}.{given}", value, f"no such field; {nearest(given, names)}")
    for field in accepted:
        if field.default is field.default_factory is dataclasses.MISSING and field.name not in fields:
            raise InputError(f"{cls.__name__}.{field.name}", None, f"is required by {cls.__name__}")
    return cls(**fields)
