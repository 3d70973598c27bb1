"""fedsum grid FILE"""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as Printed

from ..base.checks import InputError
from ..base.metrics import FINAL_WINDOW, LABELS
from ..base.toml_values import Table
from ..runs import (
    SEEDS,
    Best,
    Combination,
    PlannedRun,
    best_per_combination,
    check_metric,
    expand,
    is_packed,
    open_runs,
)
from ..spec import SWEEP, assigned, read_settings, toml_text, with_settings
from ..tasks import check_better
from .arguments import Better, ExecutionOptions, File, Folder, Gpus, Jobs, Ray, Set
from .console import Json, err, format_metric, out, print_json, print_path
from .run_tables import runs_json
from .running import run_planned

_RATES = ("eta_l", "eta_g", "eta_0")
"""fields of settings that hold a learning rate"""


def grid(
    file: File,
    settings: Set = None,
    folder: Folder = None,
    by: Annotated[
        str, typer.Option(help=f"Metric to select by: its mean over {FINAL_WINDOW}, and over all seeds.")
    ] = "test_accuracy",
    better: Better = None,
    overall: Annotated[
        bool, typer.Option("--overall", help="Select one best setting for all algorithms, not one per algorithm.")
    ] = False,
    jobs: Jobs = 1,
    ray: Ray = None,
    gpus: Gpus = 0.0,
    as_json: Json = False,
) -> None:
    """Execute a sweep, select the best settings of each algorithm and write them to FOLDER/best-ALGORITHM.toml.

    If the sweep has several tasks or schedules, settings are selected for each of them, and the files are
    FOLDER/best-ALGORITHM-TASK-SCHEDULE.toml. A name has only the parts that vary: with one algorithm or --overall, one
    task and one schedule, the file is FOLDER/best.toml. Other files can include it: include = "FOLDER/best.toml".

    If FOLDER is a packed file such as runs/a.parquet, its runs are read, nothing is trained, and the best settings are
    written to the folder runs/a.
    """
    table = with_settings(read_settings(file), settings or [])
    folder = folder or Path("runs") / file.stem
    axes = table.get(SWEEP)
    names = {name.strip() for key in axes for name in key.split(",")} if isinstance(axes, dict) else set()
    if not axes or (names and names.issubset(SEEDS)):
        raise InputError(
            SWEEP, None, "a table [sweep] with a list for at least one setting other than seed, to select from"
        )
    planned = expand(table, folder)
    direction = None if better is None else check_better("better", better)
    if not is_packed(folder):
        with err.status("evaluating the initial model"):
            check_metric(planned, by, direction)  # before anything is trained
    execution = ExecutionOptions(jobs, ray, gpus, as_json=as_json)
    runs = run_planned(planned, table, folder, execution, more_json=True)
    winners = best_per_combination(planned, runs, by, direction, overall=overall)
    output_folder = open_runs(folder).output_folder
    output_folder.mkdir(parents=True, exist_ok=True)
    several = len({combination.algorithm for combination in winners}) > 1
    written: list[tuple[Combination, Best, Path]] = []
    for combination, chosen in winners.items():
        parts = [combination.algorithm] * several + [label for _, label in combination.problem]
        if chosen is None:
            head = f"best of {', '.join(parts)}" if parts else "best"
            err.print(f"{head}: none of its settings finished all runs", highlight=False)
            continue
        best_file = output_folder / f"{'-'.join(['best', *parts])}.toml"
        best_file.write_text(toml_text(_included_table(chosen)))
        written.append((combination, chosen, best_file))
    if as_json:
        found = {
            ",".join([chosen.algorithm, *dict(combination.problem).values()]): {
                "run": chosen.name,
                "settings": chosen.settings,
                by: chosen.value,
                "file": str(best_file),
            }
            for combination, chosen, best_file in written
        }
        print_json({**runs_json(folder, runs), "by": by, "best": found})
        return
    if len(winners) > 1 and written:
        _print_table(written, by)
    for _, chosen, best_file in written:
        if len(winners) == 1:
            out.print(f"best: {chosen.name}, {LABELS.get(by, by)} {format_metric(by, chosen.value)}", highlight=False)
        print_path("settings", best_file)
    for note in (note for _, chosen, _ in written for note in _at_the_edge(planned, chosen)):
        err.print(note, soft_wrap=True, highlight=False, markup=False)


def _at_the_edge(planned: list[PlannedRun], chosen: Best) -> list[str]:
    """A note for each learning rate that is the smallest or the largest of the sweep: the best may be outside."""
    notes = []
    for key, value in chosen.settings.items():
        own = (plan.chosen.get(key) for plan in planned if plan.spec.algorithm.label == chosen.algorithm)
        tried = {number for number in own if isinstance(number, int | float)}
        if key.rpartition(".")[2] in _RATES and len(tried) > 1 and value in (min(tried), max(tried)):
            side, more = ("smallest", "smaller") if value == min(tried) else ("largest", "larger")
            notes.append(
                f"note: {key} = {value} of {chosen.algorithm} is the {side} of the sweep; also try {more} ones"
            )
    return notes


def _print_table(written: list[tuple[Combination, Best, Path]], by: str) -> None:
    """A row for each algorithm, task and schedule, with its best settings."""
    problem = [key for key, _ in written[0][0].problem]
    table = Printed(title="best settings", caption=f"mean over {FINAL_WINDOW}, and over seeds")
    for head in ("algorithm", *problem, "settings"):
        table.add_column(head, overflow="fold")
    table.add_column(LABELS.get(by, by), justify="right")
    for combination, chosen, _ in written:
        tuned = [part for key, part in chosen.labels.items() if key not in problem and part != chosen.algorithm]
        labels = dict(combination.problem).values()
        table.add_row(chosen.algorithm, *labels, ", ".join(tuned), format_metric(by, chosen.value))
    out.print(table)


def _included_table(chosen: Best) -> Table:
    """The best settings. A field such as eta_l.eta_0 comes with its whole table, whatever the including file has."""
    table: Table = {}
    for key, value in chosen.settings.items():
        parent = key.rpartition(".")[0]
        if parent and isinstance(chosen.table.get(parent), dict):
            table = assigned(table, parent, chosen.table[parent])
        table = assigned(table, key, value)
    return table
