"""fedsum compare A B ..."""

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ..base.metrics import FINAL_WINDOW, LABELS
from .console import Json, err, format_metric, out, print_json, print_path


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
    """Compare methods over seeds: means, differences paired by seed with 95% intervals, and one figure."""
    from ..figures import check_path, save
    from ..report import Interval
    from ..report import compare as compare_runs

    check_path(picture)
    found = compare_runs(inputs, {}, by)
    if reference is not None:
        found = found.against(reference)
    path = save(found.plot(), picture)
    for line in found.excluded:
        err.print(f"not compared: {line}", soft_wrap=True, highlight=False, markup=False)
    if as_json:
        methods = {str(row.pop("method")): row for row in found.table.to_dict("records")}
        excluded = list(found.excluded)
        print_json(
            {
                "by": found.metric,
                "reference": found.reference,
                "methods": methods,
                "excluded": excluded,
                "picture": str(path),
            }
        )
        return

    def text(interval: Interval, sign: str = "") -> str:
        if not interval.n:
            return "no common seed"
        values = [format_metric(found.metric, value, sign) for value in (interval.mean, interval.low, interval.high)]
        return values[0] if math.isnan(interval.low) else f"{values[0]} [{values[1]}, {values[2]}]"

    label = LABELS.get(found.metric, found.metric)
    table = Table(title=f"{label}, mean over {FINAL_WINDOW}")
    several = any(found.mean(method).n > 1 for method in found.curves)
    intervals = "in brackets: 95% interval (Student's t)" if several else "no interval: one seed per method"
    table.caption = f"{intervals}; differences are paired by seed"
    for head in ("method", "seeds", label, f"difference to {found.reference}"):
        table.add_column(head, justify="left" if head == "method" else "right", overflow="fold")
    for method in found.curves:
        mean = found.mean(method)
        gap = "" if method == found.reference else text(found.difference(method), "+")
        table.add_row(method, str(mean.n), text(mean), gap)
    out.print(table)
    print_path("picture", path)
