"""The report: one HTML page that holds its runs, its styles and its script, and asks the network for nothing."""

import html
import json
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ..base.checks import InputError
from ..base.files import written_whole
from ..base.metrics import FINAL_ROUNDS, LABELS, smaller_is_better
from ..figures import label_colours
from ..runs import CONFIG, SWEEP_FILE, Run, not_begun, read_runs
from ..spec import ScheduleSpec
from ..tasks import at_hand, vision
from ..version import __version__
from .facets import DASHES, FACETS, LAYERS, Facets, compared, facets, ordered, styles, values
from .patterns import measure
from .table import COSTS, column, final, metrics

# Enough for the width and height of a screen, and small in the file.
_RASTER = 200, 500
_MOST_CLIENTS = 1000
# The files in web/ that make up the page's script. A file uses only names from the files above it.
SCRIPTS = (
    *("elements", "data", "numbers", "view", "curve_style"),
    *("scales", "chart", "readout", "panels", "curves"),
    *("table", "final_values", "targets"),
    *("participation", "partitions", "runs", "controls", "main"),
)
# The options of a vision task that decide who has which samples.
_PARTITION = ("name", "clients", "alpha", "partition", "refill", "shards_per_client", "seed")


def write_page(folder: str | Path, out: str | Path) -> Path:
    """Writes the report on every run in `folder` and returns where it is."""
    out = check_page(out)
    runs = read_runs(folder)
    text = render(runs, Path(folder).resolve().name, _not_begun(Path(folder)))
    with written_whole(out) as part:
        part.write_text(text, encoding="utf-8")
    return out.resolve()


def check_page(path: str | Path) -> Path:
    """Refuses, before anything is read, a path that no page could be written to."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError("out", str(path), "a file ending in .html")
    if not path.parent.is_dir():
        raise InputError("out", str(path), "a file in an existing folder")
    return path


def _not_begun(folder: Path) -> list[str] | None:
    """Runs that the folder's sweep still lacks; None if there is none, or it can no longer be read."""
    if not (folder / SWEEP_FILE).exists():
        return None
    try:
        return not_begun(folder)
    except InputError:
        return None


def render(runs: Sequence[Run], title: str, missing: list[str] | None = None) -> str:
    """The page as text.

    Args:
      missing: runs that are not there; None to tell by those that are.
    """
    web = resources.files(__package__) / "web"
    filled = {
        "title": html.escape(title),
        "style": web.joinpath("page.css").read_text(encoding="utf-8"),
        "script": "\n".join(web.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS),
        # A "<" could end the element that holds the data.
        "payload": json.dumps(payload(runs, title, missing), separators=(",", ":"), allow_nan=False).replace(
            "<", "\\u003c"
        ),
    }
    template = web.joinpath("page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: filled[match[1]], template)


def payload(runs: Sequence[Run], title: str, missing: list[str] | None = None) -> dict[str, Any]:
    """Everything the page shows, as what JSON can say."""
    known = facets(runs)
    rank = {each: place for place, each in enumerate(ordered(known))}
    pairs = sorted(zip(runs, known, strict=True), key=lambda pair: (rank[pair[1]], pair[0].config.get("seed", 0)))
    runs, known = [run for run, _ in pairs], [each for _, each in pairs]
    labels = {name: values(known, name) for name in FACETS}
    names = metrics(runs)
    rounds: dict[tuple[int, ...], int] = {}
    packed = [_run(run, each, labels, names, rounds) for run, each in zip(runs, known, strict=True)]
    return {
        "title": title,
        "made": f"fedsum {__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "facets": labels,
        "compare": compared(known),
        "styles": {name: styles(labels[name], name) for name in FACETS},
        "dashes": DASHES,
        "layers": LAYERS,
        "metrics": [
            {"name": name, "label": _label(name), "percent": name.endswith("accuracy"), "less": smaller_is_better(name)}
            for name in names
        ],
        "xs": [{"name": name, "label": _label(name)} for name in ("round", *COSTS)],
        "rounds": [list(each) for each in rounds],
        "runs": packed,
        "last": FINAL_ROUNDS,
        "final": [
            {"f": [labels[name].index(row[name]) for name in FACETS]}
            | {str(name): _number(value) for name, value in row.items() if name not in FACETS}
            for row in final(runs).to_dict("records")
        ],
        "targets": {name: _targets(runs, known, name) for name in names},
        "missing": _missing(runs, known) if missing is None else missing,
        "participation": _participation(runs, known),
        "data": _data(runs, known),
    }


def _run(
    run: Run,
    each: Facets,
    labels: dict[str, list[str]],
    names: Sequence[str],
    rounds: dict[tuple[int, ...], int],
) -> dict[str, Any]:
    environment = run.config.get("environment", {})
    columns = [name for name in (*names, *COSTS) if name in run.metrics]
    return {
        "f": [labels[name].index(getattr(each, name)) for name in FACETS],
        "seed": run.config.get("seed", 0),
        "rounds": run.config.get("rounds", run.round),
        "state": run.state,
        "round": run.round,
        "reason": run.reason,
        "folder": run.folder.name,
        "command": str(environment.get("command", "")),
        "config": (run.folder / CONFIG).read_text(encoding="utf-8"),
        # Most runs are evaluated after the same rounds: told once.
        "at": rounds.setdefault(tuple(run.metrics["round"].tolist()), len(rounds)),
        "columns": {name: [_number(value) for value in run.metrics[name]] for name in columns},
    }


def _number(value: float) -> float | int | None:
    """Six significant digits; nothing for what is not finite."""
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _label(name: str) -> str:
    return LABELS.get(name, name.replace("_", " "))


def _targets(runs: Sequence[Run], known: Sequence[Facets], name: str) -> dict[str, float | int | None]:
    """For each task a value that most get near to: the middle one of what the runs ended with."""
    ends: dict[str, list[float]] = defaultdict(list)
    for run, each in zip(runs, known, strict=True):
        series = column(run, name)
        if run.state != "diverged" and len(series) and np.isfinite(series.iloc[-1]):
            ends[each.task].append(float(series.iloc[-1]))
    return {task: _number(float(f"{np.median(found):.2g}")) for task, found in ends.items()}


def _missing(runs: Sequence[Run], known: Sequence[Facets]) -> list[str]:
    """What would make the sweep a full grid: algorithms, patterns, settings and seeds seen with a task, crossed."""
    there = {(each, run.config.get("seed", 0)) for run, each in zip(runs, known, strict=True)}
    seeds = sorted({seed for _, seed in there})
    missing: dict[str, list[int]] = defaultdict(list)
    for task in values(known, "task"):
        of_task = [each for each in known if each.task == task]
        for combo in product(*(values(of_task, name) for name in ("schedule", "algorithm", "setting"))):
            for seed in seeds:
                if (Facets(task, *combo), seed) not in there:
                    missing[" · ".join(filter(None, (task, *combo)))].append(seed)
    return [f"{name}: {'seed' if len(s) == 1 else 'seeds'} {', '.join(map(str, s))}" for name, s in missing.items()]


def _participation(runs: Sequence[Run], known: Sequence[Facets]) -> list[dict[str, Any]]:
    """Every pattern of the sweep, measured again from its configuration, with the lowest seed it was run with."""
    found: dict[str, tuple[Run, set[str], str]] = {}
    for run, each in sorted(zip(runs, known, strict=True), key=lambda pair: pair[0].config.get("seed", 0)):
        key = json.dumps([run.config["schedule"], run.config.get("rounds")], default=str)
        found.setdefault(key, (run, set(), each.schedule))[1].add(each.task)
    order = values(known, "schedule")
    tasks = values(known, "task")
    ranked = sorted(found.values(), key=lambda entry: order.index(entry[2]))
    names = [label for _, _, label in ranked]
    several = {label for label in names if names.count(label) > 1}
    measured = []
    for run, seen, label in ranked:
        ordered = [task for task in tasks if task in seen]
        told = f"{label}, {', '.join(ordered)}" if label in several else label
        measured.append({"title": told, "schedule": label, "tasks": ordered} | _measured(run))
    return measured


def _measured(run: Run) -> dict[str, Any]:
    if ":" in run.config["schedule"]["name"]:
        return {"skipped": f"{run.config['schedule']['name']} is a pattern of your own."}
    seed, rounds = run.config.get("seed", 0), run.config.get("rounds", run.round)
    try:
        spec = ScheduleSpec.parse(run.config["schedule"])
        schedule = spec.make(run.config["schedule"]["n"])
        found = measure(schedule, range(rounds), seed, _RASTER)
    except (InputError, TypeError, ValueError) as error:
        return {"skipped": " ".join(str(error).split())}
    columns = found.raster.shape[1]
    # The longest delay of the rounds in each column: a mean would hide the peaks.
    tau = [int(found.delays.tau[np.arange(rounds) * columns // rounds == j].max()) for j in range(columns)]
    return {
        "clients": schedule.n,
        "rounds": rounds,
        "seed": seed,
        # A digit a cell, the share of its clients and rounds that took part.
        "raster": ["".join(str(round(9 * share)) for share in row) for row in found.raster],
        "tau": tau,
        "tau_max": found.delays.max,
        "tau_avg": _number(found.delays.avg),
        "bound": None if found.tau_max_bound is None else _number(found.tau_max_bound),
        "active": _number(float(found.active.mean())),
        "empty": int((found.active == 0).sum()),
        "never": int((found.delays.counts == 0).sum()),
    }


def _data(runs: Sequence[Run], known: Sequence[Facets]) -> list[dict[str, Any]]:
    """Samples of each client by label, once for each way the runs split their sets."""
    found: dict[str, tuple[dict[str, Any], str]] = {}
    for run, each in zip(runs, known, strict=True):
        options = {key: value for key, value in run.config["task"].items() if key in _PARTITION}
        found.setdefault(json.dumps(options, sort_keys=True, default=str), (options, each.task))
    return [{"title": task, "task": task} | _counted(options) for options, task in found.values()]


def _counted(options: dict[str, Any]) -> dict[str, Any]:
    # A report on yesterday's runs must not begin to download their data.
    if not at_hand(options["name"]):
        return {"skipped": f"{options['name']} is not on this machine."}
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
