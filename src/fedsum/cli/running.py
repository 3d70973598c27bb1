"""Execution of a run in this process, or of a sweep in worker processes, with progress bars and a final table."""

import time
from contextlib import suppress
from pathlib import Path

import typer

from ..base.checks import InputError
from ..base.toml_values import Table
from ..runs import (
    OVER,
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
from ..training import joined_ranks
from .arguments import ExecutionOptions
from .console import err, print_json
from .progress import RunProgress, SweepProgress
from .run_tables import print_run, print_runs, print_warnings, runs_json

INTERRUPTED, FAILED = 130, 1
"""exit codes"""


def run_table(
    table: Table, folder: Path, execution: ExecutionOptions, *, more_json: bool = False
) -> tuple[list[PlannedRun], dict[str, Run]]:
    """Executes the run or the sweep of these settings. Returns the planned runs, and the runs by name."""
    planned = expand(table, folder)
    return planned, run_planned(planned, table, folder, execution, more_json=more_json)


def run_planned(
    planned: list[PlannedRun], table: Table, folder: Path, execution: ExecutionOptions, *, more_json: bool = False
) -> dict[str, Run]:
    """Executes the runs of `expand(table, folder)`, prints their states, and returns them by name.

    If `folder` is a packed file, the runs are read from it and nothing is trained. With `more_json`, the caller prints
    the JSON of complete runs, `runs_json` and more.
    """
    started, duration = time.monotonic(), ""
    if is_packed(folder):
        runs = read_results(planned, table, folder)
    elif table.get(SWEEP):
        if joined_ranks().count > 1:
            raise InputError("sweep", "torchrun", "torchrun executes one run; start the sweep without it, with --jobs")
        runs = _run_sweep(planned, table, folder, execution)
        duration = f", {time.monotonic() - started:.0f} s"
    else:
        runs = {planned[0].name: _run_one(planned[0], execution)}
        if not joined_ranks().first:
            return runs  # rank 0 prints the result
    complete = all(run.state in OVER for run in runs.values())
    if execution.as_json:
        print_warnings(runs)
        if not (more_json and complete):
            print_json(runs_json(folder, runs))
    elif table.get(SWEEP):
        print_runs(folder, runs, duration)
    else:
        print_run(runs[planned[0].name])
    if any(run.state in ("stopped", "interrupted", "new") for run in runs.values()):
        err.print(f"resume with: fedsum resume {folder}", soft_wrap=True, highlight=False)
        raise typer.Exit(INTERRUPTED)
    if any(run.state == "failed" for run in runs.values()):
        raise typer.Exit(FAILED)
    return runs


def _run_sweep(planned: list[PlannedRun], table: Table, folder: Path, execution: ExecutionOptions) -> dict[str, Run]:
    read_planned(planned, extend=execution.extend)  # refuses other settings before anything is written or started
    refuse_another(table, folder, free=["rounds"] if execution.extend else ())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SWEEP_FILE).write_text(toml_text(table))
    pool: Pool = RayPool(execution.ray, execution.gpus) if execution.ray else LocalPool(execution.jobs)
    with SweepProgress(planned) as progress:
        return run_all(
            planned,
            pool,
            keep_checkpoints=execution.keep_checkpoints,
            tensorboard=execution.tensorboard,
            extend=execution.extend,
            on_look=progress,
        )


def _run_one(planned: PlannedRun, execution: ExecutionOptions) -> Run:
    spec, folder = planned.spec, planned.folder
    if not joined_ranks().first:
        with suppress(Stopped):
            execute(spec, folder, extend=execution.extend)
        return Run.read(folder)
    progress = RunProgress(spec.algorithm.label, spec.options.rounds, Run.read_or_new(folder))
    try:
        with suppress(Stopped):  # the caller prints the status, which `execute` has written
            observers = [progress, *([TensorBoard(folder)] if execution.tensorboard else [])]
            execute(spec, folder, observers=observers, extend=execution.extend)
    finally:
        progress.closed()  # also if the run is refused before it starts
    return Run.read(folder)
