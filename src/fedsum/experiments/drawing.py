"""The figures of an experiment, drawn from its runs or from its partitions."""

from pathlib import Path
from typing import Any

from ..base.files import written_whole
from ..base.toml_values import Table
from ..figures import save
from ..report import (
    NAMES,
    against_delay,
    against_setting,
    bars,
    delays,
    panel_figure,
    read_runs,
    setting_table,
    write_page,
)
from ..runs import directions, expand, open_runs

_ZOOM = 160
"""rounds of the paper's zoomed figure, for runs without `eval_last`"""
_FORMATS = ("png", "pdf")


def draw(source: Path, figure: dict[str, Any]) -> list[Path]:
    """Draws the runs of a folder or a packed file: figures as PNG and PDF, and the HTML report. Returns the files.

    The files are written to the folder, or to a folder beside the packed file with the file's name.
    """
    runs, files, folder = read_runs(source), [], open_runs(source).output_folder
    folder.mkdir(parents=True, exist_ok=True)
    # The last `eval_last` rounds, because all of them were evaluated.
    zoom = max(run.config.get("eval_last", 0) for run in runs) or _ZOOM
    views: dict[str, dict[str, Any]] = {"rounds": {}, "communication": {"x": "communication"}, "last": {"last": zoom}}
    if figure.get("bytes"):
        views["bytes"] = {"x": "bytes"}
    if figure.get("time"):
        views["time"] = {"x": "time"}
    tasks = sorted({run.config["task"]["name"] for run in runs})
    for view, options in views.items():
        # A single figure of all tasks may be too tall.
        for task in tasks if figure.get("apart") == "task" and len(tasks) > 1 else [None]:
            task_runs = [run for run in runs if task in (None, run.config["task"]["name"])]
            picture = panel_figure(task_runs, compare=figure.get("compare"), title=figure["title"], **options)
            # A user's function, "package.module:its_name", gives the file its last name.
            name = view if task is None else f"{view}-{task.rpartition(':')[2]}"
            files += [save(picture, folder / f"{name}.{suffix}") for suffix in _FORMATS]
    # The table is None if the command line leaves a single learning rate, or varies other settings too.
    if figure.get("against") == "setting" and (table := setting_table(runs)) is not None:
        picture = against_setting(table, title=figure["title"], stated=directions(runs))
        files += [save(picture, folder / f"setting.{suffix}") for suffix in _FORMATS]
    if figure.get("against") == "delay":
        table = delays(runs)
        with written_whole(folder / "delay.csv") as part:
            table.to_csv(part, index=False)
        files += [save(against_delay(table, figure["title"]), folder / f"delay.{suffix}") for suffix in _FORMATS]
    return [*files, write_page(source, folder / "report.html")]


def draw_partitions(table: Table, title: str, folder: Path) -> list[Path]:
    """Draws the heterogeneity figure: samples per client and label, one panel per task of a sweep."""
    counts = {}
    for run in expand(table, folder):
        fields, task = run.spec.task.fields, run.spec.task.make()
        split = f"Dirichlet({fields['alpha']:g})" if fields["partition"] == "dirichlet" else fields["partition"]
        vision_task: Any = task
        counts[f"{NAMES.get(run.spec.task.name, run.spec.task.name)}, {split}"] = vision_task.partition.counts
    folder.mkdir(parents=True, exist_ok=True)
    picture = bars(counts)
    picture.suptitle(title, fontsize=10)
    return [save(picture, folder / f"heterogeneity.{suffix}") for suffix in _FORMATS]
