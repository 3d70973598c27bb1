"""What `fedsum flower status` shows: read from the run folder, also while the server runs."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...base.checks import InputError
from ...runs import CHECKPOINT, PREVIOUS_CHECKPOINT, Run
from ..protocol import ServerState, membership
from ..storage import DamagedFile, Header, read_server_state
from .requests import pending_requests


@dataclass(frozen=True)
class DeploymentStatus:
    """The state of a deployment, as `fedsum flower status` shows it."""

    run: Run
    epoch: int
    clients: list[dict[str, Any]]
    """one row per client"""
    requests: list[str]
    """operator requests that are not applied yet"""
    warnings: list[str]

    def dump(self) -> dict[str, Any]:
        """As JSON can hold it."""
        run = {"state": self.run.state, "round": self.run.round, "reason": self.run.reason, "last": self.run.last}
        own = {"epoch": self.epoch, "requests": self.requests, "warnings": self.warnings, "clients": self.clients}
        return {**run, "rounds": self.run.config.get("rounds"), **own}


def deployment_status(folder: Path) -> DeploymentStatus:
    """Reads the status of the deployment in a run folder."""
    warnings = []
    for name in (CHECKPOINT, PREVIOUS_CHECKPOINT):
        if not (folder / name).is_file():
            continue
        try:
            state, header = read_server_state(folder / name)
        except DamagedFile as error:
            warnings.append(str(error))
            continue
        requests = [str(request) for request in pending_requests(folder)]
        return DeploymentStatus(Run.read(folder), state.epoch, _client_rows(state, header), requests, warnings)
    raise InputError("folder", str(folder), "; ".join(warnings) or "the run folder of a deployment, with a checkpoint")


def _client_rows(state: ServerState, header: Header) -> list[dict[str, Any]]:
    rows = []
    for record in membership.records(state, range(len(state.delays.last))):
        attendance = header.attendance.get(str(record.client), {"faults": {}, "skipped": 0, "pause": 0})
        pause = max(record.skipped, attendance["pause"])
        rows.append(
            {**asdict(record), "skipped": pause, "missed": attendance["skipped"], "faults": attendance["faults"]}
        )
    return rows
