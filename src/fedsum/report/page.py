"""The report: one HTML page that contains its data, styles and script, and makes no network requests."""

import html
import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ..base.checks import InputError, nearest
from ..base.files import written_whole
from ..base.metrics import better, final_window, in_words, is_logarithmic, is_percent
from ..figures import DASHES, LAYERS, label_colours, styles
from ..participation import Asynchronous
from ..runs import Run, directions, not_begun, open_runs, read_runs
from ..spec import ScheduleSpec, code_confirmed_by, toml_text
from ..tasks import IMAGE_SETS, at_hand, vision
from ..version import __version__
from .facets import FACETS, Facets, compared, facets, ordered, values
from .markdown_grid import range_text
from .patterns import measure
from .served_clients import served
from .table import column, cost_names, final_table, metric_names

# Rows and columns: enough for a screen, and small in the file.
_RASTER = 200, 500
_MOST_CLIENTS = 1000
# The files in web/ that make up the page's script. A file uses only names from the files above it.
SCRIPTS = (
    *("elements", "data", "numbers", "view", "curve_style"),
    *("scales", "chart", "readout", "panel_data", "panel_charts"),
    *("table", "final_values", "targets"),
    *("served", "participation", "partitions", "runs", "controls", "main"),
)
# The options of a vision task that determine its partition.
_PARTITION = ("name", "clients", "alpha", "partition", "refill", "shards_per_client", "seed")


def write_page(folder: str | Path, out: str | Path, by: str | None = None) -> Path:
    """Writes the report on every run in `folder`, or in a packed file, to `out`; returns its absolute path.

    `by` is the metric that the page shows first.

    >>> import fedsum, tempfile
    >>> task, options = fedsum.tasks.Quadratic.random(4, 2, seed=0), {"rounds": 10, "local_steps": 1, "eta_l": 0.1}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = fedsum.simulate(task, fedsum.FedSUM(), fedsum.Uniform(4, 2), folder=f"{folder}/run", **options)
    ...     write_page(folder, f"{folder}/report.html").name
    'report.html'
    """
    out = check_page(out)
    runs = read_runs(folder)
    text = render(runs, open_runs(folder).output_folder.resolve().name, _not_begun(Path(folder)), by)
    with written_whole(out) as part:
        part.write_text(text, encoding="utf-8")
    return out.resolve()


def check_page(path: str | Path) -> Path:
    """Refuses a path that no page can be written to; called before any run is read."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError("out", str(path), "a file ending in .html")
    if not path.parent.is_dir():
        raise InputError("out", str(path), "a file in an existing folder")
    return path


def _not_begun(folder: Path) -> list[str] | None:
    """The runs of the folder's sweep that have not begun; None if there is no readable sweep."""
    try:
        return not_begun(folder) if open_runs(folder).sweeps() else None
    except InputError:
        return None


def render(runs: Sequence[Run], title: str, missing: list[str] | None = None, by: str | None = None) -> str:
    """The report page as a string of HTML.

    Args:
      runs: the runs to show.
      title: the page's title.
      missing: names of the runs that are missing; None to infer them from `runs`.
      by: the metric to show first; None for the first main metric.
    """
    web = resources.files(__package__) / "web"
    substitutions = {
        "title": html.escape(title),
        "style": web.joinpath("page.css").read_text(encoding="utf-8"),
        "script": "\n".join(web.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS),
        # A "<" could close the script element that contains the data.
        "payload": json.dumps(payload(runs, title, missing, by), separators=(",", ":"), allow_nan=False).replace(
            "<", "\\u003c"
        ),
    }
    template = web.joinpath("page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: substitutions[match[1]], template)


def payload(runs: Sequence[Run], title: str, missing: list[str] | None = None, by: str | None = None) -> dict[str, Any]:
    """All data of the page, in JSON types. `fedsum/report/web/*.js` reads it."""
    curves = facets(runs)
    rank = {curve: place for place, curve in enumerate(ordered(curves))}
    pairs = sorted(zip(runs, curves, strict=True), key=lambda pair: (rank[pair[1]], pair[0].config.get("seed", 0)))
    runs, curves = [run for run, _ in pairs], [curve for _, curve in pairs]
    labels = {name: values(curves, name) for name in FACETS}
    names, stated = metric_names(runs), directions(runs)
    if by is not None:
        if by not in names:
            raise InputError("by", by, nearest(by, names))
        names = [by, *(name for name in names if name != by)]
    evaluated: dict[tuple[int, ...], int] = {}
    run_entries = [_run(run, curve, labels, names, evaluated) for run, curve in zip(runs, curves, strict=True)]
    return {
        "title": title,
        "made": f"fedsum {__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "facets": labels,
        "compare": compared(curves),
        "styles": {name: styles(labels[name], name) for name in FACETS},
        "dashes": DASHES,
        "layers": LAYERS,
        "metrics": [
            {
                "name": name,
                "label": in_words(name),
                "percent": is_percent(name),
                "better": better(name, stated),
                "log": is_logarithmic(name),
            }
            for name in names
        ],
        "xs": [{"name": name, "label": in_words(name)} for name in ("round", *cost_names(runs))],
        "rounds": [list(rounds) for rounds in evaluated],
        "runs": run_entries,
        "last": range_text(sorted({final_window(run.config.get("rounds", 0)) for run in runs} or {0})),
        "final": [
            {"f": [labels[name].index(row[name]) for name in FACETS]}
            | {str(name): _number(value) for name, value in row.items() if name not in FACETS}
            for row in final_table(runs).to_dict("records")
        ],
        "targets": {name: _targets(runs, curves, name) for name in names},
        "missing": _missing(runs, curves) if missing is None else missing,
        "served": [
            {"f": [labels[name].index(getattr(curve, name)) for name in FACETS]} | entry
            for curve, entry in served(runs, curves)
        ],
        "participation": _participation(runs, curves),
        "data": _data(runs, curves),
    }


def _run(
    run: Run,
    curve: Facets,
    labels: dict[str, list[str]],
    names: Sequence[str],
    evaluated: dict[tuple[int, ...], int],
) -> dict[str, Any]:
    """A run as JSON. `evaluated` numbers the distinct sequences of evaluated rounds; a new sequence is added."""
    environment = run.config.get("environment", {})
    columns = [name for name in (*names, *cost_names([run])) if name in run.metrics]
    return {
        "f": [labels[name].index(getattr(curve, name)) for name in FACETS],
        "seed": run.config.get("seed", 0),
        "rounds": run.config.get("rounds", run.round),
        "state": run.state,
        "round": run.round,
        "reason": run.reason,
        "folder": run.folder.name,
        "command": str(environment.get("command", "")),
        "config": toml_text(dict(run.config)),
        # Most runs are evaluated after the same rounds, which are written once.
        "at": evaluated.setdefault(tuple(run.metrics["round"].tolist()), len(evaluated)),
        "columns": {name: [_number(value) for value in run.metrics[name]] for name in columns},
    }


def _number(value: float) -> float | int | None:
    """`value` to six significant digits; None if it is not finite."""
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _targets(runs: Sequence[Run], curves: Sequence[Facets], name: str) -> dict[str, float | int | None]:
    """One target value per task for the metric `name`: the median last value of the runs that did not diverge."""
    last_values: dict[str, list[float]] = defaultdict(list)
    for run, curve in zip(runs, curves, strict=True):
        series = column(run, name)
        if run.state != "diverged" and len(series) and np.isfinite(series.iloc[-1]):
            last_values[curve.task].append(float(series.iloc[-1]))
    return {task: _number(float(f"{np.median(of_task):.2g}")) for task, of_task in last_values.items()}


def _missing(runs: Sequence[Run], curves: Sequence[Facets]) -> list[str]:
    """The runs that the sweep lacks to be a full grid.

    The grid is, per task, the product of the task's patterns, algorithms and settings with the seeds of all runs.
    """
    present = {(curve, run.config.get("seed", 0)) for run, curve in zip(runs, curves, strict=True)}
    seeds = sorted({seed for _, seed in present})
    missing: dict[str, list[int]] = defaultdict(list)
    for task in values(curves, "task"):
        of_task = [curve for curve in curves if curve.task == task]
        for combo in product(*(values(of_task, name) for name in ("schedule", "algorithm", "setting"))):
            for seed in seeds:
                if (Facets(task, *combo), seed) not in present:
                    missing[" · ".join(filter(None, (task, *combo)))].append(seed)
    return [f"{name}: {'seed' if len(s) == 1 else 'seeds'} {', '.join(map(str, s))}" for name, s in missing.items()]


def _participation(runs: Sequence[Run], curves: Sequence[Facets]) -> list[dict[str, Any]]:
    """Every pattern of the sweep, measured from its configuration, with the lowest seed among its runs."""
    patterns: dict[str, tuple[Run, set[str], str]] = {}
    for run, curve in sorted(zip(runs, curves, strict=True), key=lambda pair: pair[0].config.get("seed", 0)):
        key = json.dumps([run.config["schedule"], run.config.get("rounds")], default=str)
        patterns.setdefault(key, (run, set(), curve.schedule))[1].add(curve.task)
    order = values(curves, "schedule")
    tasks = values(curves, "task")
    ranked = sorted(patterns.values(), key=lambda pattern: order.index(pattern[2]))
    labels = [label for _, _, label in ranked]
    ambiguous = {label for label in labels if labels.count(label) > 1}
    entries = []
    for run, pattern_tasks, label in ranked:
        ordered_tasks = [task for task in tasks if task in pattern_tasks]
        title = f"{label}, {', '.join(ordered_tasks)}" if label in ambiguous else label
        entries.append({"title": title, "schedule": label, "tasks": ordered_tasks} | _pattern(run))
    return entries


def _pattern(run: Run) -> dict[str, Any]:
    """The measured pattern of a run as JSON, or the reason why it is skipped."""
    table = run.config["schedule"]
    while isinstance(table, Mapping):  # a Sampled has its availability as a table, which may be another Sampled
        name = str(table.get("name", ""))
        if ":" in name:
            return {"skipped": f"{name} is a Python function, which the report does not call."}
        table = table.get("availability")
    seed, rounds = run.config.get("seed", 0), run.config.get("rounds", run.round)
    try:
        with code_confirmed_by(lambda name: False):  # the run may be from elsewhere
            spec = ScheduleSpec.parse(run.config["schedule"])
            schedule = spec.make(run.config["schedule"]["n"])
        if isinstance(schedule, Asynchronous) and not _known_arrivals(schedule, run):
            return {"skipped": "The arrivals depend on the clients' numbers of steps and the sizes of their messages."}
        measured = measure(schedule, range(rounds), seed, _RASTER)
    except (InputError, TypeError, ValueError) as error:
        return {"skipped": " ".join(str(error).split())}
    columns = measured.raster.shape[1]
    # The largest tau_t (the longest any client has been away) per column, because a mean would hide the peaks.
    tau = [int(measured.delays.tau[np.arange(rounds) * columns // rounds == j].max()) for j in range(columns)]
    return {
        "clients": schedule.n,
        "rounds": rounds,
        "seed": seed,
        # One digit per cell: 9 times the share of its (client, round) pairs that were active, rounded.
        "raster": ["".join(str(round(9 * share)) for share in row) for row in measured.raster],
        "tau": tau,
        "tau_max": measured.delays.max,
        "tau_avg": _number(measured.delays.avg),
        "bound": None if measured.tau_max_bound is None else _number(measured.tau_max_bound),
        "active": _number(float(measured.active.mean())),
        "empty": int((measured.active == 0).sum()),
        "never": int((measured.delays.counts == 0).sum()),
    }


def _known_arrivals(schedule: Asynchronous, run: Run) -> bool:
    """Whether updates arrive in the same order for any messages and numbers of steps: all clients have the same."""
    links = schedule.devices.up, schedule.devices.down
    return "local_steps" in run.config and all(isinstance(link, float) and math.isinf(link) for link in links)


def _data(runs: Sequence[Run], curves: Sequence[Facets]) -> list[dict[str, Any]]:
    """Samples per client and label, one entry per distinct partition of the runs."""
    partitions: dict[str, tuple[dict[str, Any], str]] = {}
    for run, curve in zip(runs, curves, strict=True):
        options = {key: value for key, value in run.config["task"].items() if key in _PARTITION}
        partitions.setdefault(json.dumps(options, sort_keys=True, default=str), (options, curve.task))
    return [{"title": task, "task": task} | _partition(options) for options, task in partitions.values()]


def _partition(options: dict[str, Any]) -> dict[str, Any]:
    """The partition of a vision task as JSON, or the reason why it is skipped."""
    name = options["name"]
    # A report must not import a user's code, and must not download data.
    if ":" in name:
        return {"skipped": f"{name} is a task of your own: the report does not import its code."}
    if name not in IMAGE_SETS:
        return {"skipped": f"Only image data sets are drawn, and {name} is none."}
    if not at_hand(name):
        return {"skipped": f"The images of {name} are not on this machine."}
    try:
        counts = vision(**options).partition.counts
    except (InputError, OSError, TypeError) as error:
        return {"skipped": " ".join(str(error).split())}
    sizes = counts.sum(1)
    return {
        "clients": len(counts),
        "samples": int(sizes.sum()),
        "sizes": [int(sizes.min()), _number(float(sizes.mean())), int(sizes.max())],
        "colours": label_colours(counts.shape[1]),
        "counts": counts[:_MOST_CLIENTS].tolist(),
        "options": ", ".join(f"{key}={value}" for key, value in options.items() if key != "name"),
    }
