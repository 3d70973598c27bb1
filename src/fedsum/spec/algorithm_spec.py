"""Algorithms in settings files."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..algorithms import ALGORITHMS, Algorithm
from ..base.checks import InputError
from ..base.registry import build, split
from ..base.toml_values import Table, plain
from ..training import parse_rate
from .imported import absolute, check_arguments, import_path, imported


def parse_algorithm(table: Any) -> Algorithm:
    """From a name, or a table with a name and fields; `dump_algorithm` is the inverse."""
    name, fields = split("algorithm", table)
    fields = {key: function_or_value(f"algorithm.{key}", value) for key, value in fields.items()}
    if ":" not in name:
        return build("algorithm", ALGORITHMS, name, fields)
    make = imported("algorithm", name)
    check_arguments(f"algorithm {name}", make, fields)
    algorithm = make(**fields)
    if not isinstance(algorithm, Algorithm):
        raise InputError("algorithm", name, "a class derived from fedsum.Algorithm")
    return algorithm


def dump_algorithm(algorithm: Algorithm, rounds: int) -> Table:
    """A table of TOML types; a field that is a function of the round becomes its values over `rounds` rounds."""
    cls = type(algorithm)
    name = cls.__name__ if ALGORITHMS.get(cls.__name__) is cls else import_path(cls)
    return {"name": name, **object_fields(algorithm, rounds)}


def own_algorithm_table(table: Any) -> Table | None:
    """The table of a user's own algorithm, with the absolute path of its file; None for an algorithm of fedsum."""
    name, fields = split("algorithm", table)
    return {"name": absolute(name), **fields} if ":" in name else None


def function_or_value(field: str, value: Any) -> Any:
    """A table with a name becomes a function of the round, as for a learning rate; other values are unchanged."""
    return parse_rate(value, field) if isinstance(value, Mapping) else value


def object_fields(source: Any, rounds: int) -> Table:
    """The fields of a dataclass, or the attributes of another object, as TOML types."""
    if not dataclasses.is_dataclass(source):
        return dict(plain(vars(source), rounds))
    values = {field.name: getattr(source, field.name) for field in dataclasses.fields(source) if field.init}
    return dict(plain(values, rounds))
