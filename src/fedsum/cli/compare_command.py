"""fedsum compare A B ..."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ..base.metrics import FINAL_WINDOW, LABELS
from .console import Json, err, format_metric, note_replaced, out, print_json, print_path

if TYPE_CHECKING:
    from ..report import Comparison, Interval


def compare(
    inputs: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="Runs, folders with runs at any depth, or packed files.")
    ],
    by: Annotated[
        str | None,
        typer.Option(help="Metric; default: test_accuracy, or else error or train_loss."),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Method to which differences are taken, by its name in the table; default: the first of the sweep "
            "or of the arguments.",
        ),
    ] = None,
    picture: Annotated[Path, typer.Option("--out", help="Image file to write.")] = Path("fedsum-compare.png"),
    as_json: Json = False,
) -> None:
    """Compare methods over seeds: means, differences paired by seed with 95% intervals, and one figure.

    Runs with several tasks, schedules or devices are compared for each of them.
    """
    from ..figures import check_path, save
    from ..report import compare as compare_runs

    check_path(picture)
    found = compare_runs(inputs, {}, by)
    if reference is not None:
        found = found.against(reference)
    note_replaced(picture)
    path = save(found.plot(), picture)
    for line in found.excluded:
        err.print(f"not compared: {line}", soft_wrap=True, highlight=False, markup=False)
    if as_json:
        problems: dict[str, dict[str, Any]] = {problem: {} for problem in found.curves}
        for row in found.table.to_dict("records"):
            problems[str(row.pop("problem", ""))][str(row.pop("method"))] = row
        print_json(
            {
                "by": found.metric,
                "reference": found.reference,
                "problems": problems,
                "excluded": list(found.excluded),
                "picture": str(path),
            }
        )
        return
    for problem in found.curves:
        out.print(_table(found, problem))
    print_path("picture", path)


def _table(found: "Comparison", problem: str) -> Table:
    """The methods on one problem."""
    methods, label = found.curves[problem], LABELS.get(found.metric, found.metric)
    table = Table(title=": ".join(filter(None, (problem, f"{label}, mean over {FINAL_WINDOW}"))))
    several = any(len(seeds) > 1 for seeds in methods.values())
    intervals = "in brackets: 95% interval (Student's t)" if several else "no interval: one seed per method"
    table.caption = f"{intervals}; differences are paired by seed"
    for head in ("method", "seeds", label, f"difference to {found.reference}"):
        table.add_column(head, justify="left" if head == "method" else "right", overflow="fold")
    for method in methods:
        mean, gap = found.mean(method, problem), found.difference(method, problem)
        missing = "no common seed" if found.reference in methods else f"no result of {found.reference}"
        difference = _text(found.metric, gap, "+") if gap.n else missing
        cells = _text(found.metric, mean), "" if method == found.reference else difference
        table.add_row(method, str(mean.n), *cells)
    return table


def _text(metric: str, interval: "Interval", sign: str = "") -> str:
    values = [format_metric(metric, value, sign) for value in (interval.mean, interval.low, interval.high)]
    return values[0] if math.isnan(interval.low) else f"{values[0]} [{values[1]}, {values[2]}]"
