"""fedsum grid FILE"""

from pathlib import Path
from typing import Annotated

import typer

from ..base.checks import InputError, nearest
from ..base.metrics import FINAL_WINDOW, LABELS
from ..base.toml_values import Table
from ..runs import SEED, Best, best, expand, open_runs
from ..spec import SWEEP, assigned, read_settings, toml_text, with_settings
from .arguments import File, Folder, Gpus, HowToRun, Jobs, Ray, Set
from .console import Json, figure, out, print_path
from .running import run_planned


def grid(
    file: File,
    settings: Set = None,
    folder: Folder = None,
    by: Annotated[
        str, typer.Option(help=f"The metric that decides: its mean over {FINAL_WINDOW}, and over all seeds.")
    ] = "test_accuracy",
    jobs: Jobs = 1,
    ray: Ray = None,
    gpus: Gpus = 0.0,
    as_json: Json = False,
) -> None:
    """Do a sweep, find its best settings, and write them to FOLDER/best.toml.

    Other files take them with include = "FOLDER/best.toml". If FOLDER is a packed file, its runs are read, nothing is
    trained, and best.toml goes into a folder beside the file, named like it.
    """
    table = with_settings(read_settings(file), settings or [])
    folder = folder or Path("runs") / file.stem
    axes = table.get(SWEEP)
    if not axes or (isinstance(axes, dict) and list(axes) == [SEED]):
        raise InputError(SWEEP, None, "a grid needs lists of values to choose from under [sweep], other than seeds")
    planned = expand(table, folder)
    own_tasks = any(":" in run.spec.task.name for run in planned)
    if by not in LABELS and not own_tasks:  # a task of one's own may measure anything
        raise InputError("by", by, nearest(by, LABELS))
    runs = run_planned(planned, table, folder, HowToRun(jobs, ray, gpus, as_json=as_json))
    chosen = best(planned, runs, by)
    best_file = open_runs(folder).output_folder / "best.toml"
    best_file.parent.mkdir(parents=True, exist_ok=True)
    best_file.write_text(toml_text(_to_include(chosen)))
    if not as_json:
        out.print(f"best: {chosen.name}, {LABELS.get(by, by)} {figure(by, chosen.value)}", highlight=False)
        print_path("settings", best_file)


def _to_include(chosen: Best) -> Table:
    """The chosen settings; a rate's name comes with its number, so that the file means the same wherever included."""
    table: Table = {}
    for key, value in chosen.settings.items():
        above = key.rpartition(".")[0]
        if above and isinstance(chosen.table.get(above), dict):
            table = assigned(table, above, chosen.table[above])
        table = assigned(table, key, value)
    return table
