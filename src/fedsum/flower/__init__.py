"""The same algorithms on Flower. A commit protocol keeps server and clients consistent when replies are lost."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clientapp import client_app
    from .federation import Federation
    from .ledger import Ledger
    from .serverapp import ServerTask, own_data, server_app

__all__ = ["Federation", "Ledger", "ServerTask", "client_app", "own_data", "server_app"]

_MODULES = {
    "Federation": "federation",
    "Ledger": "ledger",
    "ServerTask": "serverapp",
    "client_app": "clientapp",
    "own_data": "serverapp",
    "server_app": "serverapp",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, so that the protocol and the commands work without Flower.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != "flwr":
            raise
        raise ModuleNotFoundError("this needs Flower: pip install 'fedsum[flower]'", name="flwr") from error
