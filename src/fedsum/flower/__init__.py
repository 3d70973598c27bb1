"""The same algorithms on Flower. A commit protocol keeps server and clients consistent when replies are lost."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .requirement import INSTALL, require_flower

if TYPE_CHECKING:
    from .app_template import write_app
    from .certs import write_certs
    from .clientapp import client_app
    from .deployment import Deployment, setting_rows
    from .federation import Federation
    from .journal import Journal
    from .operators import DeploymentStatus, deployment_status, make_request, restore_backup, write_backup
    from .protocol import Ledger, MergeRules, RoundOutcome
    from .serverapp import ServerTask, own_data, server_app

__all__ = [
    "Deployment",
    "DeploymentStatus",
    "Federation",
    "Journal",
    "Ledger",
    "MergeRules",
    "RoundOutcome",
    "ServerTask",
    "client_app",
    "deployment_status",
    "make_request",
    "own_data",
    "require_flower",
    "restore_backup",
    "server_app",
    "setting_rows",
    "write_app",
    "write_backup",
    "write_certs",
]

_MODULES = {
    "Deployment": "deployment",
    "DeploymentStatus": "operators",
    "Federation": "federation",
    "Journal": "journal",
    "Ledger": "protocol",
    "MergeRules": "protocol",
    "RoundOutcome": "protocol",
    "ServerTask": "serverapp",
    "client_app": "clientapp",
    "deployment_status": "operators",
    "make_request": "operators",
    "own_data": "serverapp",
    "restore_backup": "operators",
    "server_app": "serverapp",
    "setting_rows": "deployment",
    "write_app": "app_template",
    "write_backup": "operators",
    "write_certs": "certs",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, so that the protocol and the command line work without Flower.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != "flwr":
            raise
        raise ModuleNotFoundError(f"this needs Flower: {INSTALL}", name="flwr") from error
