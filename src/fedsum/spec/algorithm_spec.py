"""Algorithms as a file says them."""

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
    """In types that TOML has; a field that is a function of the round by its values over so many rounds."""
    cls = type(algorithm)
    name = cls.__name__ if ALGORITHMS.get(cls.__name__) is cls else import_path(cls)
    return {"name": name, **object_fields(algorithm, rounds)}


def own_algorithm_table(table: Any) -> Table | None:
    """What a file says of an algorithm of the user's own, with the absolute path of its file."""
    name, fields = split("algorithm", table)
    return {"name": absolute(name), **fields} if ":" in name else None


def function_or_value(field: str, value: Any) -> Any:
    """A table with a name stands for a function of the round, as for a learning rate."""
    return parse_rate(value, field) if isinstance(value, Mapping) else value


def object_fields(thing: Any, rounds: int) -> Table:
    """The fields of a dataclass, or the attributes of another object, in types that TOML has."""
    if not dataclasses.is_dataclass(thing):
        return dict(plain(vars(thing), rounds))
    values = {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing) if field.init}
    return dict(plain(values, rounds))
