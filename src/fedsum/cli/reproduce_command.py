"""fedsum reproduce NAME"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ..base.checks import InputError, integer
from ..experiments import EXPERIMENTS, experiment
from ..runs import SEED, PlannedRun, Run, best, open_runs
from ..spec import SWEEP, display_label, with_settings
from .arguments import Board, ExecutionOptions, Gpus, Jobs, Keep, Ray, Set
from .console import Json, out, print_json, print_path
from .run_tables import runs_json
from .running import run_table

_FOLDER = "Folder for the runs, or a packed file with the runs; default runs/NAME or runs/NAME-small."


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"The experiment: {', '.join(EXPERIMENTS)}.")],
    scale: Annotated[
        str, typer.Option(help="'full', as in the paper; or 'small', which takes minutes on a laptop.")
    ] = "full",
    rounds: Annotated[int | None, typer.Option(help="T, rounds; default: the experiment's.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds; 3 means the seeds 0, 1 and 2. Default: the experiment's.")
    ] = None,
    settings: Set = None,
    folder: Annotated[Path | None, typer.Option("--folder", help=_FOLDER)] = None,
    jobs: Jobs = 1,
    ray: Ray = None,
    gpus: Gpus = 0.0,
    keep: Keep = False,
    tensorboard: Board = False,
    as_json: Json = False,
) -> None:
    """Execute the missing runs of an experiment, and write its figures and its HTML report."""
    from ..experiments import drawing

    table, figure = experiment(name, scale)
    if rounds is not None:
        table["rounds"] = rounds
    if seeds is not None:
        if SEED not in table[SWEEP]:
            raise InputError("seeds", seeds, f"leave it out: {name} sets its seeds together with other settings")
        table[SWEEP][SEED] = list(range(integer("seeds", seeds, low=1)))
    table = with_settings(table, settings or [])
    folder = folder or Path("runs") / (name if scale == "full" else f"{name}-{scale}")
    planned: list[PlannedRun] = []
    runs: dict[str, Run] = {}
    if figure.get("bars"):
        drawn = drawing.draw_partitions(table, figure["title"], open_runs(folder).output_folder)
    else:
        execution = ExecutionOptions(jobs, ray, gpus, keep, tensorboard, as_json)
        planned, runs = run_table(table, folder, execution, more_json=True)
        drawn = drawing.draw(folder, figure)
    if as_json:
        print_json({**runs_json(folder, runs), "drawn": [str(path) for path in drawn]})
        return
    if figure.get("best_for"):
        for label, group in _grouped(planned, figure["best_for"]).items():
            try:
                chosen = best(group, runs, "test_accuracy").name
            except InputError:
                chosen = "none of its settings finished all runs"
            out.print(f"best for {label}: {chosen}", highlight=False)
    for path in drawn:
        print_path("drawn", path)


def _grouped(planned: Sequence[PlannedRun], key: str) -> dict[str, list[PlannedRun]]:
    """The runs by the label of their value of a swept setting."""
    groups: dict[str, list[PlannedRun]] = {}
    for run in planned:
        value = run.chosen[key]
        table = value if isinstance(value, Mapping) else {"name": value}
        groups.setdefault(display_label(key.partition(".")[0], table), []).append(run)
    return groups
