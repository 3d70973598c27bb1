"""Settings as TOML files: reading, `include`, and changes by `--set`.

    rounds = 2000
    local_steps = 10
    eta_l = {name = "InverseSqrt", eta_0 = 0.01}
    task = {name = "mnist", clients = 100, alpha = 0.1}
    algorithm = "FedSUM"
    schedule = {name = "Uniform", size = 20}

`include` names files whose settings this file overrides. Keys with dots, as in `--set task.alpha=0.5`, address fields
of tables.
"""

import copy
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.checks import InputError
from ..base.toml_values import Table

SWEEP = "sweep"
"""the table of value lists, of which every combination is a run"""
_DEEPEST = 8


def read_settings(path: Path) -> Table:
    """The settings of a TOML file and the files it includes; paths in `include` are relative to the file."""
    return _read(Path(path), 0)


def _read(path: Path, depth: int) -> Table:
    if depth > _DEEPEST:
        raise InputError("include", str(path), f"at most {_DEEPEST} levels of included files")
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
    """`below`, overridden by `above`. Tables are joined, but a table with another `name` replaces the table below."""
    joined = copy.deepcopy(dict(below))
    for key, value in above.items():
        under = joined.get(key)
        if isinstance(value, Mapping) and isinstance(under, Mapping) and value.get("name") in (None, under.get("name")):
            joined[key] = overlaid(under, value)
        else:
            joined[key] = copy.deepcopy(value)
    return joined


def assigned(table: Mapping[str, Any], key: str, value: Any) -> Table:
    """`table` with one setting changed; dots in the key address fields of tables, unless they are quoted as in TOML.

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
    """Refuses a setting that every run of the sweep would overwrite."""
    axes = table.get(SWEEP)
    for axis in axes if isinstance(axes, Mapping) else ():
        for name in (part.strip() for part in axis.split(",")):
            if key == name or key.startswith(f"{name}."):
                command = f"--set 'sweep.{name if name == axis and '.' not in axis else json.dumps(axis)}=[...]'"
                raise InputError(key, text, f"the sweep sets {name}; change its values with {command}")


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def toml_text(table: Table) -> str:
    """`table` as the text of a TOML file. The axes of a sweep keep their order, which the names of the runs follow."""
    import tomli_w

    text = tomli_w.dumps({key: value for key, value in table.items() if key != SWEEP})
    axes = table.get(SWEEP)
    if not isinstance(axes, Mapping):
        return text if axes is None else tomli_w.dumps(table)
    # tomli_w writes long lists of tables as [[sweep.algorithm]], after all other axes.
    return "\n".join([text, f"[{SWEEP}]", *(f"{_inline(key)} = {_inline(values)}" for key, values in axes.items()), ""])


def _inline(value: Any) -> str:
    """A value, or a name as a quoted key, on one line."""
    import tomli_w

    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_inline(key)} = {_inline(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_inline, value))}]"
    return tomli_w.dumps({"value": value}).removeprefix("value = ").rstrip("\n")
