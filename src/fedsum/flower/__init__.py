"""The same algorithms on Flower, where replies get lost: a protocol that keeps both sides consistent."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app import ServerTask, own_data, server_app
    from .client import client_app
    from .ledger import Ledger
    from .server import Federation

__all__ = ["Federation", "Ledger", "ServerTask", "client_app", "own_data", "server_app"]

_HOME = {"Federation": "server", "Ledger": "ledger", "client_app": "client"}


def __getattr__(name: str) -> Any:
    # Imported when asked for, so that what does not speak to Flower (the protocol, the commands) works without it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{_HOME.get(name, 'app')}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != "flwr":
            raise
        raise ModuleNotFoundError("this needs Flower: pip install 'fedsum[flower]'", name="flwr") from error
