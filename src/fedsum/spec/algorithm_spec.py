"""Algorithms in settings files."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from ..algorithms import ALGORITHMS, OPTIMISERS, Algorithm, ServerOpt, ServerOptimiser
from ..base.checks import InputError
from ..base.registry import build, registered, split
from ..base.toml_values import Table, plain
from ..training import parse_rate
from .imported import absolute, check_arguments, import_path, imported

T = TypeVar("T")


def parse_algorithm(table: Any) -> Algorithm:
    """From a name, or a table with a name and fields; `dump_algorithm` is the inverse."""
    name, fields = split("algorithm", table)
    wraps = registered(ALGORITHMS, name) == ServerOpt.__name__
    return _named("algorithm", ALGORITHMS, Algorithm, name, {**fields, **(_wrapped(fields) if wraps else {})})


def _wrapped(fields: Table) -> dict[str, Algorithm | ServerOptimiser]:
    """The two parts of a ServerOpt, each a name, or a table with a name and fields."""
    parts: dict[str, Algorithm | ServerOptimiser] = {}
    if "algorithm" in fields:
        parts["algorithm"] = parse_algorithm(fields["algorithm"])
    if "optimiser" in fields:
        parts["optimiser"] = _named("optimiser", OPTIMISERS, ServerOptimiser, *split("optimiser", fields["optimiser"]))
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
    if isinstance(algorithm, ServerOpt):
        optimiser = algorithm.optimiser
        return {
            "name": _name(algorithm, ALGORITHMS),
            "algorithm": dump_algorithm(algorithm.algorithm, rounds),
            "optimiser": {"name": _name(optimiser, OPTIMISERS), **object_fields(optimiser, rounds)},
        }
    return {"name": _name(algorithm, ALGORITHMS), **object_fields(algorithm, rounds)}


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
