"""The table of means over seeds below a table of runs."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table as Printed

from ..base.metrics import FINAL_WINDOW, LABELS, better, is_percent
from ..runs import Run, directions
from .console import format_metric, out
from .progress import SHOWN_METRICS

_GROUP = ("task", "schedule", "setting")


def print_means(runs: Mapping[str, Run]) -> None:
    """Means over seeds, FedSUM's family first; nothing if no two runs differ in their seed alone."""
    from ..report import final_table

    usable = [run for run in runs.values() if run.config and run.rows]
    rows: list[dict[str, Any]] = final_table(usable).to_dict("records") if usable else []  # type: ignore[assignment]
    if not any(row["over"] > 1 for row in rows):
        return
    stated = directions(usable)
    own = [name for name in stated if f"{name}_last" in rows[0]]
    metrics = [name for name in (*SHOWN_METRICS, *own) if f"{name}_last" in rows[0]]
    varying = [name for name in ("task", "schedule", "algorithm", "setting") if len({row[name] for row in rows}) > 1]
    printed = Printed(title="means over seeds", caption=f"mean over {FINAL_WINDOW}, ± standard deviation over seeds")
    for head in varying or ["algorithm"]:
        # "local_steps=2" cut to "local_steps…" would look like "local_steps=10".
        printed.add_column(head, overflow="fold")
    for head in ("seeds", *(LABELS.get(name, name) for name in metrics)):
        printed.add_column(head, justify="right")
    # Bold is invisible in a file or a pipe.
    styled, any_best = out.color_system is not None, False
    for row in rows:
        cells = []
        for name in metrics:
            is_best = _is_best(row, rows, name, better(name, stated) == "higher")
            any_best = any_best or is_best
            cell = _cell(row, name)
            cells.append(cell if not is_best else f"[bold]{cell}[/bold]" if styled else f"* {cell}")
        unfinished = "" if row["finished"] or not row["over"] else f" so far, round {row['round']}"
        printed.add_row(*(str(row[name]) for name in varying or ["algorithm"]), f"{row['over']}{unfinished}", *cells)
    if any_best:
        mark = "bold" if styled else "*"
        printed.caption = f"{printed.caption}; {mark}: the best algorithm of the same task, pattern and setting"
    out.print(printed)


def _cell(row: Mapping[str, Any], name: str) -> str:
    mean, deviation = row[f"{name}_last"], row[f"{name}_last_std"]
    if mean != mean:
        return "-"
    if deviation != deviation:
        return format_metric(name, mean)
    # Two digits would hide differences that are larger than the deviations.
    shown = f"{mean:.3g}" if name in LABELS and not is_percent(name) else format_metric(name, mean)
    return f"{shown} ± {format_metric(name, deviation)}"


def _is_best(row: Mapping[str, Any], rows: list[dict[str, Any]], name: str, higher: bool) -> bool:
    """Whether a row is the best of at least two algorithms; runs that did not all finish are never the best."""
    rivals = [other for other in rows if all(other[facet] == row[facet] for facet in _GROUP)]
    complete = [other[f"{name}_last"] for other in rivals if other["finished"] == other["runs"]]
    if len(rivals) < 2 or not complete or row["finished"] < row["runs"]:
        return False
    return bool(row[f"{name}_last"] == (max if higher else min)(complete))
