"""reproduce: run what is missing of an experiment, and draw it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..base.checks import integer
from ..base.files import written_whole
from ..cli.console import Json, out, print_path
from ..runs import config
from ..runs.commands import Board, Gpus, Jobs, Keep, Ray, Set, do
from ..runs.config import SWEEP
from ..runs.search import best
from ..runs.sweep import expand
from . import EXPERIMENTS, experiment

_LAST = 160
"""rounds of the paper's zoom, for runs that do not say"""


def add_to(app: typer.Typer) -> None:
    app.command()(reproduce)


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"{', '.join(EXPERIMENTS)}.")],
    scale: Annotated[str, typer.Option(help="'full', as in the paper; or 'small', minutes on a laptop.")] = "full",
    rounds: Annotated[int | None, typer.Option(help="T, instead of the experiment's.")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds 0 to this, less one.")] = 1,
    settings: Set = None,
    folder: Annotated[Path | None, typer.Option("--folder", help="Default runs/NAME, or runs/NAME-small.")] = None,
    jobs: Jobs = 1,
    ray: Ray = None,
    gpus: Gpus = 0.0,
    keep: Keep = False,
    tensorboard: Board = False,
    as_json: Json = False,
) -> None:
    """Do the runs of one of the paper's figures that are missing, and draw it: figures and a page to explore."""
    table, figure = experiment(name, scale)
    if rounds is not None:
        table["rounds"] = rounds
    table[SWEEP]["seed"] = list(range(integer("seeds", seeds, low=1)))
    table = config.with_settings(table, settings or [])
    folder = folder or Path("runs") / (name if scale == "full" else f"{name}-{scale}")
    if figure.get("bars"):
        drawn = _bars(table, figure["title"], folder)
    else:
        runs, stands = do(table, folder, jobs, ray, gpus, keep, tensorboard, as_json)
        drawn = draw(folder, figure)
        if name == "grid" and not as_json:
            for task in table[SWEEP]["task.name"]:
                chosen = best([run for run in runs if run.chosen["task.name"] == task], stands, "test_accuracy")
                out.print(f"best for {task}: {chosen.name}", highlight=False)
    if not as_json:
        for path in drawn:
            print_path("drawn", path)


def draw(folder: Path, figure: dict[str, Any]) -> list[Path]:
    """The paper's grids of panels, as PNG and PDF, and the page."""
    from ..report.collect import collect
    from ..report.figures import save
    from ..report.page import page
    from ..report.panels import grid

    runs, drawn = collect(folder), []
    # As many as were evaluated one by one, in the paper 160.
    zoom = max(run.config.get("eval_last", 0) for run in runs) or _LAST
    ways: dict[str, dict[str, Any]] = {"rounds": {}, "communication": {"x": "communication"}, "last": {"last": zoom}}
    tasks = sorted({run.config["task"]["name"] for run in runs})
    for way, how in ways.items():
        # A picture of all tasks may be too high to look at.
        for task in tasks if figure.get("apart") == "task" and len(tasks) > 1 else [None]:
            some = [run for run in runs if task in (None, run.config["task"]["name"])]
            picture = grid(some, compare=figure.get("compare"), title=figure["title"], **how)
            name = way if task is None else f"{way}-{task}"
            drawn += [save(picture, folder / f"{name}.{suffix}") for suffix in ("png", "pdf")]
    if figure.get("against") == "setting":
        from ..report.sensitivity import against_setting, settings

        # The command line may leave a single rate, or vary more than that.
        if (table := settings(runs)) is not None:
            picture = against_setting(table, title=figure["title"])
            drawn += [save(picture, folder / f"setting.{suffix}") for suffix in ("png", "pdf")]
    if figure.get("against") == "delay":
        from ..report.against_delay import against_delay, delays

        table = delays(runs)
        with written_whole(folder / "delay.csv") as part:
            table.to_csv(part, index=False)
        drawn += [save(against_delay(table, figure["title"]), folder / f"delay.{suffix}") for suffix in ("png", "pdf")]
    return [*drawn, page(folder, folder / "report.html")]


def _bars(table: dict[str, Any], title: str, folder: Path) -> list[Path]:
    from ..report.facets import NAMES
    from ..report.figures import save
    from ..report.panels import bars
    from ..runs.recipes import complete_task, to_task

    counts = {}
    for run in expand(table, folder):
        asked = complete_task(run.table["task"])
        made: Any = to_task(run.table["task"])
        how = f"Dirichlet({asked['alpha']:g})" if asked["partition"] == "dirichlet" else asked["partition"]
        counts[f"{NAMES.get(asked['name'], asked['name'])}, {how}"] = made.partition.counts
    folder.mkdir(parents=True, exist_ok=True)
    picture = bars(counts)
    picture.suptitle(title, fontsize=10)
    return [save(picture, folder / f"heterogeneity.{suffix}") for suffix in ("png", "pdf")]
