"""fedsum flower status FOLDER"""

from typing import TYPE_CHECKING, Any

from rich.table import Table as Printed

from .arguments import DeploymentFolder
from .console import Json, out, print_json

if TYPE_CHECKING:
    from ..flower import DeploymentStatus

_COLUMNS = {
    "client": "client",
    "round": "last merged",
    "skipped": "asked again in",
    "missed": "not asked",
    "strikes": "strikes",
    "outliers": "outliers",
    "losses": "lost states",
}


def flower_status(folder: DeploymentFolder, as_json: Json = False) -> None:
    """Show the state of a deployment: rounds, epoch, why it stopped, and a table of clients."""
    from ..flower import deployment_status

    status = deployment_status(folder)
    if as_json:
        print_json(status.dump())
        return
    run = status.run
    out.print(
        f"{run.state}, {run.round} of {run.config.get('rounds', '?')} rounds, epoch {status.epoch}", highlight=False
    )
    lines = [run.reason, *status.warnings, *(f"not applied yet: {request}" for request in status.requests)]
    for line in filter(None, lines):
        out.print(line, highlight=False, markup=False, soft_wrap=True)
    out.print(_table(status))


def _table(status: "DeploymentStatus") -> Printed:
    printed = Printed()
    for heading in (*_COLUMNS.values(), "faults"):
        printed.add_column(heading, justify="left" if heading == "faults" else "right", no_wrap=heading == "faults")
    for row in status.clients:
        printed.add_row(*(_cell(name, row) for name in _COLUMNS), _faults(row))
    return printed


def _cell(name: str, row: dict[str, Any]) -> str:
    if name == "round" and row["round"] < 0:
        return "never"
    if name == "skipped":
        return "evicted" if row["evicted"] else f"{row['skipped']} attempts" if row["skipped"] else ""
    return str(row[name] + 1 if name == "round" else row[name])


def _faults(row: dict[str, Any]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(row["faults"].items()))
