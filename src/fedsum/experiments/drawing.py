"""The figures of an experiment, drawn from its runs or from its data."""

from pathlib import Path
from typing import Any

from ..base.files import written_whole
from ..base.plain import Table
from ..figures import save
from ..report import (
    NAMES,
    against_delay,
    against_setting,
    bars,
    delays,
    grid,
    read_runs,
    settings,
    write_page,
)
from ..runs import expand

_ZOOM = 160
"""rounds of the paper's zoom, for runs that do not say"""
_FORMATS = ("png", "pdf")


def draw(folder: Path, figure: dict[str, Any]) -> list[Path]:
    """The paper's panels, as PNG and PDF, and the page."""
    runs, drawn = read_runs(folder), []
    # As many rounds as were evaluated one by one, in the paper 160.
    zoom = max(run.config.get("eval_last", 0) for run in runs) or _ZOOM
    ways: dict[str, dict[str, Any]] = {"rounds": {}, "communication": {"x": "communication"}, "last": {"last": zoom}}
    tasks = sorted({run.config["task"]["name"] for run in runs})
    for way, options in ways.items():
        # A picture of all tasks may be too high to look at.
        for task in tasks if figure.get("apart") == "task" and len(tasks) > 1 else [None]:
            shown = [run for run in runs if task in (None, run.config["task"]["name"])]
            picture = grid(shown, compare=figure.get("compare"), title=figure["title"], **options)
            name = way if task is None else f"{way}-{task}"
            drawn += [save(picture, folder / f"{name}.{suffix}") for suffix in _FORMATS]
    # The command line may leave a single rate, or vary more than that: there is no such table then.
    if figure.get("against") == "setting" and (table := settings(runs)) is not None:
        picture = against_setting(table, title=figure["title"])
        drawn += [save(picture, folder / f"setting.{suffix}") for suffix in _FORMATS]
    if figure.get("against") == "delay":
        table = delays(runs)
        with written_whole(folder / "delay.csv") as part:
            table.to_csv(part, index=False)
        drawn += [save(against_delay(table, figure["title"]), folder / f"delay.{suffix}") for suffix in _FORMATS]
    return [*drawn, write_page(folder, folder / "report.html")]


def draw_partitions(table: Table, title: str, folder: Path) -> list[Path]:
    """Samples per client and label of every task of a sweep: the heterogeneity figure."""
    counts = {}
    for run in expand(table, folder):
        fields, task = run.spec.task.fields, run.spec.task.make()
        how = f"Dirichlet({fields['alpha']:g})" if fields["partition"] == "dirichlet" else fields["partition"]
        partition: Any = task
        counts[f"{NAMES.get(run.spec.task.name, run.spec.task.name)}, {how}"] = partition.partition.counts
    folder.mkdir(parents=True, exist_ok=True)
    picture = bars(counts)
    picture.suptitle(title, fontsize=10)
    return [save(picture, folder / f"heterogeneity.{suffix}") for suffix in _FORMATS]
