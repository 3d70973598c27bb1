"""The same algorithms on Flower. A commit protocol keeps server and clients consistent when replies are lost."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .requirement import INSTALL, require_flower

if TYPE_CHECKING:
    from .app_template import write_app
    from .backup import restore_backup, write_backup
    from .certs import write_certs
    from .clientapp import client_app
    from .deployment import Deployment, setting_rows
    from .federation import Federation
    from .journal import Journal
    from .ledger import Ledger, RoundOutcome
    from .merge_rules import MergeRules
    from .operator_requests import make_request
    from .serverapp import ServerTask, own_data, server_app
    from .status_report import DeploymentStatus, deployment_status

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
    "DeploymentStatus": "status_report",
    "Federation": "federation",
    "Journal": "journal",
    "Ledger": "ledger",
    "MergeRules": "merge_rules",
    "RoundOutcome": "ledger",
    "ServerTask": "serverapp",
    "client_app": "clientapp",
    "deployment_status": "status_report",
    "make_request": "operator_requests",
    "own_data": "serverapp",
    "restore_backup": "backup",
    "server_app": "serverapp",
    "setting_rows": "deployment",
    "write_app": "app_template",
    "write_backup": "backup",
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
