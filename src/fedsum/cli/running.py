"""A run in this process, or a sweep in others, with progress; then how they stand. Several commands share this."""

import time
from contextlib import suppress
from pathlib import Path

import typer

from ..base.toml_values import Table
from ..runs import (
    SWEEP_FILE,
    LocalPool,
    PlannedRun,
    Pool,
    RayPool,
    Run,
    Stopped,
    TensorBoard,
    execute,
    expand,
    is_packed,
    read_planned,
    read_results,
    refuse_another,
    run_all,
)
from ..spec import SWEEP, toml_text
from .arguments import HowToRun
from .console import err, print_json
from .progress import RunProgress, SweepProgress
from .run_tables import print_run, print_runs, summary

INTERRUPTED, FAILED = 130, 1
"""exit codes"""


def run_table(table: Table, folder: Path, how: HowToRun) -> tuple[list[PlannedRun], dict[str, Run]]:
    """Does the run or the sweep of these settings, and returns the runs as planned and, by name, as they are."""
    planned = expand(table, folder)
    return planned, run_planned(planned, table, folder, how)


def run_planned(planned: list[PlannedRun], table: Table, folder: Path, how: HowToRun) -> dict[str, Run]:
    """Does what `expand(table, folder)` planned, prints how it stands, and returns the runs by name.

    If `folder` is a packed file, the runs are read from it and nothing is trained.
    """
    started, took = time.monotonic(), ""
    if is_packed(folder):
        runs = read_results(planned, table, folder)
    elif table.get(SWEEP):
        runs = _run_sweep(planned, table, folder, how)
        took = f", {time.monotonic() - started:.0f} s"
    else:
        runs = {planned[0].name: _run_one(planned[0], how.tensorboard)}
    if how.as_json:
        print_json({name: summary(run) for name, run in runs.items()})
    elif table.get(SWEEP):
        print_runs(folder, runs, took)
    else:
        print_run(runs[planned[0].name])
    if any(run.state in ("stopped", "interrupted", "new") for run in runs.values()):
        err.print(f"go on with: fedsum resume {folder}", soft_wrap=True, highlight=False)
        raise typer.Exit(INTERRUPTED)
    if any(run.state == "failed" for run in runs.values()):
        raise typer.Exit(FAILED)
    return runs


def _run_sweep(planned: list[PlannedRun], table: Table, folder: Path, how: HowToRun) -> dict[str, Run]:
    read_planned(planned)  # refused before anything is written or started
    refuse_another(table, folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SWEEP_FILE).write_text(toml_text(table))
    pool: Pool = RayPool(how.ray, how.gpus) if how.ray else LocalPool(how.jobs)
    with SweepProgress(planned) as progress:
        return run_all(
            planned, pool, keep_checkpoints=how.keep_checkpoints, tensorboard=how.tensorboard, on_look=progress
        )


def _run_one(planned: PlannedRun, tensorboard: bool) -> Run:
    spec, folder = planned.spec, planned.folder
    progress = RunProgress(spec.algorithm.label, spec.options.rounds, Run.read(folder))
    try:
        with suppress(Stopped):  # the folder's status says it, and the command prints it
            execute(spec, folder, observers=[progress, *([TensorBoard(folder)] if tensorboard else [])])
    finally:
        progress.closed()  # also if the run was refused before it began
    return Run.read(folder)
