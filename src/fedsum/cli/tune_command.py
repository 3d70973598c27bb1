"""fedsum tune FILE"""

import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as Printed

from ..base.metrics import FINAL_WINDOW, LABELS
from ..runs import (
    CHECKPOINT,
    OVER,
    LocalPool,
    PlannedRun,
    Pool,
    RayPool,
    Run,
    Search,
    already_there,
    check_metric,
    run_all,
)
from ..spec import read_settings, toml_text, with_settings
from ..tasks import check_better
from .arguments import Better, File, Gpus, Jobs, Keep, Ray, Set
from .console import Json, err, format_metric, out, print_json, print_path
from .progress import SweepProgress
from .run_tables import print_warnings, runs_json
from .running import FAILED, INTERRUPTED


def tune(
    file: File,
    settings: Set = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Folder for the runs; default runs/NAME-OF-FILE-tune.")
    ] = None,
    by: Annotated[
        str, typer.Option(help=f"Metric to select by: its mean over {FINAL_WINDOW}, and over all seeds.")
    ] = "test_accuracy",
    better: Better = None,
    span: Annotated[int, typer.Option(help="Powers of two to try on both sides of the file's eta_l.")] = 5,
    jobs: Jobs = 1,
    ray: Ray = None,
    gpus: Gpus = 0.0,
    keep: Keep = False,
    as_json: Json = False,
) -> None:
    """Search for the best learning rate of each algorithm, and write FOLDER/tuned.toml for further runs.

    Rates are the file's eta_l times powers of two. All of them are trained for a third of the rounds (rounded down to a
    multiple of eval_every), and the best third is trained to the end. \\[sweep] may list algorithms and seeds.

    Select by a metric of validation data: a comparison on the data that chose the rates is too optimistic.
    """
    search = Search.of(with_settings(read_settings(file), settings or []), span)
    folder = folder or Path("runs") / f"{file.stem}-tune"
    stated = None if better is None else check_better("better", better)
    with err.status("evaluating the initial model"):
        direction = check_metric(search.planned(0, folder), by, stated)  # before the first run
    survivors: dict[str, list[float]] | None = None
    everything: dict[str, Run] = {}
    scores: dict[str, dict[float, float]] = {}
    for stage, rounds in enumerate(search.stages):
        planned = [
            run
            for run in search.planned(stage, folder)
            if survivors is None or run.chosen[search.rate] in survivors[search.algorithm(run)]
        ]
        if not as_json:
            head = f"stage {stage + 1} of {len(search.stages)}"
            err.print(f"{head}: {len(planned)} runs to round {rounds}", highlight=False)
        pool: Pool = RayPool(ray, gpus) if ray else LocalPool(jobs)
        runs = _run_stage(planned, pool)
        everything |= runs
        _refuse_incomplete(runs, file, folder)
        scores = search.scores(planned, runs, by, direction)
        survivors = search.survivors(scores)
        if not keep:
            last = stage == len(search.stages) - 1
            for run in planned:
                if last or run.chosen[search.rate] not in survivors[search.algorithm(run)]:
                    (run.folder / CHECKPOINT).unlink(missing_ok=True)
    best = {algorithm: max(rates, key=lambda rate: rates[rate]) for algorithm, rates in scores.items()}
    tuned = folder / "tuned.toml"
    tuned.write_text(toml_text(search.tuned_table(best)))
    values = {algorithm: search.value(scores[algorithm][rate], direction) for algorithm, rate in best.items()}
    at_edge = [a for a, rate in best.items() if rate in (min(search.rates), max(search.rates))]
    for algorithm in at_edge:
        note = f"the best rate of {algorithm} is at the edge of the search; try --span {span + 3}, or another eta_l"
        err.print(f"note: {note}", highlight=False, soft_wrap=True)
    if as_json:
        found: dict[str, Any] = {a: {"settings": {search.rate: best[a]}, by: values[a]} for a in best}
        print_warnings({name: run for name, run in everything.items() if run.state != "diverged"})
        print_json({**runs_json(folder, everything), "by": by, "best": found, "file": str(tuned)})
        return
    table = Printed(title=f"best {search.rate} of each algorithm", caption=f"after {search.stages[-1]} rounds")
    for head in ("algorithm", search.rate, LABELS.get(by, by)):
        table.add_column(head, justify="left" if head == "algorithm" else "right")
    for algorithm, rate in best.items():
        value = "diverged" if math.isnan(values[algorithm]) else format_metric(by, values[algorithm])
        table.add_row(algorithm, f"{rate:g}", value)
    out.print(table)
    print_path("settings", tuned)
    out.print(f"run them with: fedsum run {tuned}", highlight=False, soft_wrap=True)


def _run_stage(planned: list[PlannedRun], pool: Pool) -> dict[str, Run]:
    done = {run.name: there for run in planned if (there := already_there(run))}
    missing = [run for run in planned if run.name not in done]
    if not missing:
        return done
    with SweepProgress(missing) as progress:
        return done | run_all(missing, pool, keep_checkpoints=True, extend=True, on_look=progress)


def _refuse_incomplete(runs: dict[str, Run], file: Path, folder: Path) -> None:
    """Ends the command if a run failed or was interrupted."""
    incomplete = {name: run for name, run in runs.items() if run.state not in OVER}
    if not incomplete:
        return
    print_warnings(incomplete)
    if any(run.state == "failed" for run in incomplete.values()):
        raise typer.Exit(FAILED)
    err.print(f"continue with: fedsum tune {file} --folder {folder}", soft_wrap=True, highlight=False)
    raise typer.Exit(INTERRUPTED)
