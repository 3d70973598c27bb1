"""Algorithms in settings files."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from ..algorithms import (
    ALGORITHMS,
    COMPRESSORS,
    OPTIMISERS,
    Algorithm,
    Compressed,
    Compressor,
    ServerOpt,
    ServerOptimiser,
)
from ..base.checks import InputError
from ..base.registry import build, registered, split
from ..base.toml_values import Table, plain
from ..training import parse_rate
from .imported import absolute, check_arguments, import_path, imported

T = TypeVar("T")
_WRAPPERS = (ServerOpt, Compressed)
_PARTS: dict[str, tuple[Mapping[str, type[Any]], type[Any]]] = {
    "optimiser": (OPTIMISERS, ServerOptimiser),
    "compressor": (COMPRESSORS, Compressor),
}
"""fields of a wrapper besides its algorithm that are objects: their classes by name, and the base class"""


def parse_algorithm(table: Any) -> Algorithm:
    """From a name, or a table with a name and fields; `dump_algorithm` is the inverse."""
    name, fields = split("algorithm", table)
    wraps = registered(ALGORITHMS, name) in [cls.__name__ for cls in _WRAPPERS]
    return _named("algorithm", ALGORITHMS, Algorithm, name, {**fields, **(_wrapped(fields) if wraps else {})})


def _wrapped(fields: Table) -> dict[str, Any]:
    """The parts of a wrapper, each a name, or a table with a name and fields."""
    parts: dict[str, Any] = {}
    if "algorithm" in fields:
        parts["algorithm"] = parse_algorithm(fields["algorithm"])
    for part, (classes, base) in _PARTS.items():
        if part in fields:
            parts[part] = _named(part, classes, base, *split(part, fields[part]))
    return parts


def _named(kind: str, classes: Mapping[str, type[T]], base: type[Any], name: str, fields: Mapping[str, Any]) -> T:
    """The object of a registered class, or of a user's own class or function."""
    fields = {key: function_or_value(f"{kind}.{key}", value) for key, value in fields.items()}
    if ":" not in name:
        return build(kind, classes, name, fields)
    make = imported(kind, name)
    check_arguments(f"{kind} {name}", make, fields)
    made = make(**fields)
    if not isinstance(made, base):
        raise InputError(kind, name, f"a class derived from fedsum.{base.__name__}")
    return made  # type: ignore[no-any-return]


def dump_algorithm(algorithm: Algorithm, rounds: int) -> Table:
    """A table of TOML types; a field that is a function of the round becomes its values over `rounds` rounds."""
    if not isinstance(algorithm, _WRAPPERS):
        return {"name": _name(algorithm, ALGORITHMS), **object_fields(algorithm, rounds)}
    table: Table = {"name": _name(algorithm, ALGORITHMS), "algorithm": dump_algorithm(algorithm.algorithm, rounds)}
    for field in dataclasses.fields(algorithm):
        value = getattr(algorithm, field.name)
        if field.name in _PARTS:
            table[field.name] = {"name": _name(value, _PARTS[field.name][0]), **object_fields(value, rounds)}
        elif field.name != "algorithm":
            table[field.name] = plain(value, rounds)
    return table


def _name(source: Any, classes: Mapping[str, type]) -> str:
    cls = type(source)
    return cls.__name__ if classes.get(cls.__name__) is cls else import_path(cls)


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
