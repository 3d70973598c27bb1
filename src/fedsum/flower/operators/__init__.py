"""Operators' tools, which work on the run folder while the server runs: requests, backups and the status.

They need no Flower. The server applies `requests` between rounds.
"""

from .backup import restore_backup, write_backup
from .requests import apply_requests, make_request, pending_requests
from .status_report import DeploymentStatus, deployment_status

__all__ = [
    "DeploymentStatus",
    "apply_requests",
    "deployment_status",
    "make_request",
    "pending_requests",
    "restore_backup",
    "write_backup",
]
