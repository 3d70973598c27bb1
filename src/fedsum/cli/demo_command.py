"""fedsum demo"""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ..base.checks import InputError, integer, nearest
from ..base.metrics import LABELS
from ..experiments import DEMOS
from ..training import RoundDone
from .console import PROGRESS_OPTIONS, Json, err, format_metric, note_replaced, out, print_json, print_path


def demo(
    name: Annotated[
        str, typer.Argument(metavar="[digits|quadratic]", help="The demo to run; default digits.")
    ] = "digits",
    rounds: Annotated[int | None, typer.Option(help="Rounds of training; default: the demo's.")] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--out", help="Image file to write; default fedsum-demo.png or fedsum-demo-quadratic.png."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare algorithms on heterogeneous clients under biased participation: a table and a figure."""
    from ..figures import check_path, curves, save

    if name not in DEMOS:
        raise InputError("demo", name, nearest(name, DEMOS))
    chosen = DEMOS[name]
    T = integer("rounds", chosen.rounds if rounds is None else rounds, low=1)
    picture = picture or Path("fedsum-demo.png" if name == "digits" else f"fedsum-demo-{name}.png")
    check_path(picture)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[metrics]}"))
    with Progress(*columns, TimeRemainingColumn(), console=err, **PROGRESS_OPTIONS) as progress:
        bars = {label: progress.add_task(label, total=T, metrics="") for label in chosen.algorithms}

        def on_round(label: str, done: RoundDone) -> None:
            progress.advance(bars[label])
            if done.metrics:
                metrics = "  ".join(f"{LABELS[c]} {format_metric(c, done.metrics[c])}" for c in chosen.columns)
                progress.update(bars[label], metrics=metrics)

        histories = chosen.run(T, on_round)
    note_replaced(picture)
    path = save(curves({k: h.metrics for k, h in histories.items()}, chosen.columns, chosen.title), picture)
    if as_json:
        runs = {
            label: {
                "state": "finished" if history.diverged is None else "diverged",
                "round": history.rows[-1]["round"],
                "reason": history.reason,
                "last": history.rows[-1],
            }
            for label, history in histories.items()
        }
        print_json({"picture": str(path), "runs": runs})
        return
    table = Table(title=chosen.title, caption=f"after {T} rounds")
    table.add_column("algorithm")
    for head in (*(LABELS[c] for c in chosen.columns), LABELS["communication"], "seconds"):
        table.add_column(head, justify="right")
    for label, history in histories.items():
        last = history.rows[-1]
        values = [format_metric(column, last[column]) for column in chosen.columns]
        table.add_row(label, *values, f"{last['communication']:,}", f"{last['seconds']:.1f}")
    out.print(table)
    print_path("picture", path)
