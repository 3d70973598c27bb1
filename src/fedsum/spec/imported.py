"""Users' own classes and functions: `file.py:name` or `package.module:name`."""

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from ..base.checks import InputError, nearest

_FILES: dict[str, str] = {}
"""the file of each module that was imported from a path"""
_OWN = re.compile(
    r"fedsum\.experiments\.(availability|between|deadline|methods|mistakes|phones|resnet|sst2):[A-Za-z0-9]+"
)
"""the names in fedsum's own settings files"""
_CONFIRM: ContextVar[Callable[[str], bool]] = ContextVar("confirm", default=lambda name: True)


@contextmanager
def code_confirmed_by(confirm: Callable[[str], bool]) -> Iterator[None]:
    """Within this block, code that settings name is imported only if `confirm(name)` returns True.

    For settings that someone else may have written, as in a run folder from another machine.
    """
    token = _CONFIRM.set(confirm)
    try:
        yield
    finally:
        _CONFIRM.reset(token)


def imported(kind: str, name: str) -> Callable[..., Any]:
    """The class or function that `file.py:name` or `package.module:name` names."""
    if not _OWN.fullmatch(name) and not _CONFIRM.get()(name):
        raise InputError(kind, name, "code that is not fedsum's; it was not imported. If you trust it, use --trust")
    where, _, attribute = name.partition(":")
    try:
        module = _from_file(Path(where).resolve()) if where.endswith(".py") else importlib.import_module(where)
    except (ImportError, OSError, AttributeError, ValueError, SyntaxError) as error:
        raise InputError(kind, name, f"file.py:name or module:name that can be imported ({error})") from error
    if not hasattr(module, attribute):
        names = [own for own, value in vars(module).items() if callable(value) and not own.startswith("_")]
        raise InputError(kind, name, f"not in {where}; {nearest(attribute, names)}")
    target = getattr(module, attribute)
    if not callable(target):
        raise InputError(kind, name, f"a class or a function, not {type(target).__name__}")
    return target  # type: ignore[no-any-return]


def import_path(cls: type) -> str:
    """The name by which `imported` finds the class."""
    return f"{_FILES.get(cls.__module__, cls.__module__)}:{cls.__qualname__}"


def absolute(name: str) -> str:
    """`file.py:name` with the file's absolute path, because a run may be resumed from another folder."""
    where, _, attribute = name.partition(":")
    return f"{Path(where).resolve()}:{attribute}" if where.endswith(".py") else name


def _from_file(path: Path) -> ModuleType:
    name = f"fedsum_from_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name not in sys.modules:
        import cloudpickle

        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"no file {path}")
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))  # as `python file.py` does: the file may import its neighbours
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
    """Raises an InputError that names the unknown or missing argument of `make`."""
    try:
        parameters = inspect.signature(make).parameters
    except ValueError:  # some built-in classes have no signature
        return
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    for name, value in arguments.items():
        if name not in parameters and not takes_any:
            raise InputError(f"{what}: {name}", value, f"no such field; {nearest(name, parameters)}")
    for parameter in parameters.values():
        optional = parameter.kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        if parameter.default is parameter.empty and parameter.name not in arguments and not optional:
            raise InputError(f"{what}: {parameter.name}", None, "is required")
