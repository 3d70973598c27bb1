"""Objects of the user's own: `file.py:thing` or `package.module:thing`."""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ..base.checks import InputError, nearest

_FILES: dict[str, str] = {}
"""file of each module that was imported from a path"""


def imported(kind: str, name: str) -> Callable[..., Any]:
    """The class or function that `file.py:thing` or `package.module:thing` names."""
    where, _, thing = name.partition(":")
    try:
        module = _from_file(Path(where).resolve()) if where.endswith(".py") else importlib.import_module(where)
        target = getattr(module, thing)
    except (ImportError, OSError, AttributeError, ValueError, SyntaxError) as error:
        raise InputError(kind, name, f"file.py:thing or module:thing that can be imported ({error})") from error
    if not callable(target):
        raise InputError(kind, name, f"a class or a function, not {type(target).__name__}")
    return target  # type: ignore[no-any-return]


def import_path(cls: type) -> str:
    """The name by which `imported` finds the class."""
    return f"{_FILES.get(cls.__module__, cls.__module__)}:{cls.__qualname__}"


def absolute(name: str) -> str:
    """`file.py:thing` with the file's absolute path: a run may be resumed from another folder."""
    where, _, thing = name.partition(":")
    return f"{Path(where).resolve()}:{thing}" if where.endswith(".py") else name


def _from_file(path: Path) -> ModuleType:
    name = f"fedsum_from_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name not in sys.modules:
        import cloudpickle

        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"no file {path}")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        # Worker processes cannot import it by this name.
        cloudpickle.register_pickle_by_value(module)
        _FILES[name] = str(path)
    return sys.modules[name]


def check_arguments(what: str, make: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Refuses, by name, an argument that `make` does not take or one that it needs."""
    try:
        known = inspect.signature(make).parameters
    except ValueError:  # some built-in classes have no signature
        return
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known.values())
    for given, value in arguments.items():
        if given not in known and not takes_any:
            raise InputError(f"{what}: {given}", value, f"no such field; {nearest(given, known)}")
    for parameter in known.values():
        optional = parameter.kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        if parameter.default is parameter.empty and parameter.name not in arguments and not optional:
            raise InputError(f"{what}: {parameter.name}", None, "is required")
