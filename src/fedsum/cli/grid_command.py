"""fedsum grid FILE"""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..base.checks import InputError
from ..base.metrics import FINAL_WINDOW, LABELS
from ..base.toml_values import Table
from ..runs import SEED, Best, best, best_per_algorithm, check_metric, expand, is_packed, open_runs
from ..spec import SWEEP, assigned, read_settings, toml_text, with_settings
from ..tasks import check_better
from .arguments import Better, ExecutionOptions, File, Folder, Gpus, Jobs, Ray, Set
from .console import Json, err, format_metric, out, print_json, print_path
from .run_tables import runs_json
from .running import run_planned


def grid(
    file: File,
    settings: Set = None,
    folder: Folder = None,
    by: Annotated[
        str, typer.Option(help=f"Metric to select by: its mean over {FINAL_WINDOW}, and over all seeds.")
    ] = "test_accuracy",
    better: Better = None,
    overall: Annotated[
        bool, typer.Option("--overall", help="Select one best run over all algorithms, not one per algorithm.")
    ] = False,
    jobs: Jobs = 1,
    ray: Ray = None,
    gpus: Gpus = 0.0,
    as_json: Json = False,
) -> None:
    """Execute a sweep, select the best settings of each algorithm and write them to FOLDER/best-ALGORITHM.toml.

    With one algorithm, or with --overall, the file is FOLDER/best.toml. Other files can include it:
    include = "FOLDER/best.toml". If FOLDER is a packed file such as runs/a.parquet, its runs are read, nothing is
    trained, and the best settings are written to the folder runs/a.
    """
    table = with_settings(read_settings(file), settings or [])
    folder = folder or Path("runs") / file.stem
    axes = table.get(SWEEP)
    if not axes or (isinstance(axes, dict) and list(axes) == [SEED]):
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
    by_algorithm = best_per_algorithm(planned, runs, by, direction)
    if overall or len(by_algorithm) == 1:
        winners: dict[str, Best | None] = {"": best(planned, runs, by, direction)}
    else:
        winners = by_algorithm
    output_folder = open_runs(folder).output_folder
    output_folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}
    for label, chosen in winners.items():
        head, suffix = (f"best of {label}", f"-{label}") if label else ("best", "")
        if chosen is None:
            err.print(f"{head}: none of its settings finished all runs", highlight=False)
            continue
        best_file = output_folder / f"best{suffix}.toml"
        best_file.write_text(toml_text(_included_table(chosen)))
        algorithm = chosen.algorithm
        found[algorithm] = {"run": chosen.name, "settings": chosen.settings, by: chosen.value, "file": str(best_file)}
        if not as_json:
            out.print(f"{head}: {chosen.name}, {LABELS.get(by, by)} {format_metric(by, chosen.value)}", highlight=False)
            print_path("settings", best_file)
    if as_json:
        print_json({**runs_json(folder, runs), "by": by, "best": found})


def _included_table(chosen: Best) -> Table:
    """The best settings. A field such as eta_l.eta_0 comes with its whole table, whatever the including file has."""
    table: Table = {}
    for key, value in chosen.settings.items():
        parent = key.rpartition(".")[0]
        if parent and isinstance(chosen.table.get(parent), dict):
            table = assigned(table, parent, chosen.table[parent])
        table = assigned(table, key, value)
    return table
