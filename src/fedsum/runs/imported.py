"""What a file of the user's names: `file.py:thing` or `package.module:thing`."""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ..base.checks import InputError

_FILES: dict[str, str] = {}
"""where modules that have no name of their own were read from"""


def imported(kind: str, name: str) -> Callable[..., Any]:
    """What `file.py:thing` or `package.module:thing` names."""
    where, _, thing = name.partition(":")
    try:
        module = _from_file(Path(where).resolve()) if where.endswith(".py") else importlib.import_module(where)
        found = getattr(module, thing)
    except (ImportError, OSError, AttributeError, ValueError, SyntaxError) as error:
        raise InputError(kind, name, f"file.py:thing or module:thing that can be imported ({error})") from error
    if not callable(found):
        raise InputError(kind, name, f"something to call, not {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def where(cls: type) -> str:
    """What `imported` finds the class by."""
    return f"{_FILES.get(cls.__module__, cls.__module__)}:{cls.__qualname__}"


def from_anywhere(name: str) -> str:
    """`file.py:thing` by the whole path: a run may be resumed from another folder."""
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
