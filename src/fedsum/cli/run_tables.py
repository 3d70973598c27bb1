"""Tables of runs, and their JSON form. `Run.read` determines the state of a run."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.measure import Measurement
from rich.table import Table as Printed

from ..base.metrics import LABELS
from ..runs import Run, directions, planned_parts
from ..spec import ENVIRONMENT
from .console import err, format_metric, out
from .mean_tables import print_means
from .progress import SHOWN_METRICS

_MAX_LENGTH = 80


def runs_json(folder: Path, runs: Mapping[str, Run], *, configs: bool = False) -> dict[str, Any]:
    """The JSON form of runs, the same for every command; a single run has the name "."."""
    summaries = {}
    for name, run in runs.items():
        summary: dict[str, Any] = {"state": run.state, "round": run.round, "reason": run.reason, "last": run.last}
        summaries[name or "."] = summary | ({"config": run.config} if configs and run.config else {})
    return {"folder": str(folder), "runs": summaries}


def print_warnings(runs: Mapping[str, Run]) -> None:
    """Prints the reason of each diverged or failed run on standard error: JSON on standard output stays JSON."""
    for line in _reasons(runs):
        err.print(line, soft_wrap=True, highlight=False, markup=False)


def _reasons(runs: Mapping[str, Run]) -> list[str]:
    return [f"{name or run.name}: {run.state}: {run.reason}" for name, run in runs.items() if run.reason]


def print_run(run: Run) -> None:
    """One run: state, last evaluation, settings, environment."""
    printed = Printed(title=str(run.folder), show_header=False)
    reason = run.reason.removeprefix(f"{run.state} ")
    printed.add_row("state", run.state + (f": {reason}" if reason else ""))
    total = f" of {run.config['rounds']}" if "rounds" in run.config else ""
    printed.add_row("rounds done", f"{run.round}{total}")
    for name, value in run.last.items():
        if name != "round":
            printed.add_row(LABELS.get(name, name), f"{value:,}" if isinstance(value, int) else f"{value:.6g}")
    printed.add_section()
    for key, value in run.config.items():
        if key != ENVIRONMENT:
            printed.add_row(key, _short(value))
    printed.add_section()
    for key, value in run.config.get(ENVIRONMENT, {}).items():
        printed.add_row(key, str(value))
    out.print(printed)


def print_runs(folder: Path, runs: dict[str, Run], duration: str = "") -> None:
    """All runs of a sweep, one row per run."""
    parts = _setting_columns(folder, runs)
    settings = list(next(iter(parts.values()), {}))
    in_columns = {name: list(row.values()) for name, row in parts.items()}
    table = _narrow(_runs_table(folder, runs, duration, settings, in_columns)) if settings else None
    if table is None or _width(table) > out.width:
        # With spaces, a long name wraps between settings and not within a number.
        names = {name: [name.replace(",", ", ")] for name in runs}
        table = _narrow(_runs_table(folder, runs, duration, ["run"], names))
    out.print(table)
    print_means(runs)
    for line in _reasons(runs):
        out.print(line, soft_wrap=True, highlight=False, markup=False)


def _runs_table(
    folder: Path, runs: Mapping[str, Run], duration: str, heads: Sequence[str], cells: Mapping[str, Sequence[str]]
) -> Printed:
    """A row per run; `heads` and `cells` are the columns that name it."""
    finished = sum(run.state == "finished" for run in runs.values())
    printed = Printed(title=str(folder), caption=f"{finished} of {len(runs)} runs finished{duration}")
    names = dict.fromkeys((*SHOWN_METRICS, *directions(runs.values())))
    shown = [name for name in names if any(name in run.last for run in runs.values())]
    for head in (*heads, "state", "round"):
        printed.add_column(head, overflow="fold")
    for head in (*(LABELS.get(name, name) for name in shown), "seconds"):
        printed.add_column(_in_lines(head), justify="right")
    for name, run in runs.items():
        values = [format_metric(column, run.last[column]) if column in run.last else "-" for column in shown]
        seconds = f"{run.last['seconds']:.1f}" if "seconds" in run.last else "-"
        printed.add_row(*cells[name], run.state, str(run.round), *values, seconds)
    return printed


def _setting_columns(folder: Path, runs: Mapping[str, Run]) -> dict[str, dict[str, str]]:
    """Per run, its swept settings without their names: {"algorithm": "FedAvg", "seed": "0"}; empty if they differ."""
    planned = planned_parts(folder)
    parts = [planned.get(name, {}) for name in runs]
    keys = list(parts[0])
    if any(list(row) != keys for row in parts):
        return {}
    last = [key.removesuffix(".name").rpartition(".")[2] for key in keys]
    heads = last if len(set(last)) == len(last) else keys
    return {
        name: {
            head: part.removeprefix(f"{key}=").removeprefix(f"{key.rpartition('.')[2]}=")
            for head, (key, part) in zip(heads, row.items(), strict=True)
        }
        for name, row in zip(runs, parts, strict=True)
    }


def _in_lines(head: str) -> str:
    """A column's head in lines as long as its longest word."""
    return textwrap.fill(head, max(map(len, head.split())))


def _narrow(table: Printed) -> Printed:
    """The table, without padding if it would not fit otherwise."""
    if _width(table) > out.width:
        table.padding = 0
    return table


def _width(table: Printed) -> int:
    return Measurement.get(out, out.options.update_width(10_000), table).maximum


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} = {_short(item)}" for key, item in value.items())
    text = str(value)
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 3] + "..."
