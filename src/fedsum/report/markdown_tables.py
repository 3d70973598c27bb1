"""Runs as Markdown tables: final values, wins of one algorithm, rounds to a target, values at rounds, delays."""

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..base.checks import InputError, nearest
from ..base.metrics import Better, final_window, in_words, is_percent
from ..base.metrics import better as direction
from ..runs import Run, directions
from .against_delay import delays
from .facets import all_seeds, facets, ordered
from .markdown_grid import (
    Curves,
    Grid,
    Key,
    check_facets,
    diverged_text,
    finals,
    markdown_lines,
    metric_label,
    number_text,
    range_text,
    signed_text,
    spread_text,
)
from .table import column

SPREADS = ("none", "std", "range")
_AMOUNTS = {"time": ("Simulated seconds", 1.0), "bytes": ("Gigabytes sent", 1e9)}
"""what a target may cost beside rounds: in words, and how many of the metric's units are one of the table's"""
_OF_PANEL = ("task", "schedule", "setting")
"""facets in which the panels of `wins` differ"""


def curves_of(
    runs: Sequence[Run], where: Mapping[str, str | Sequence[str]], rename: Mapping[str, str] | None = None
) -> Curves:
    """The runs of every curve whose facets have the labels in `where`, in the order of the report.

    `rename` replaces labels; `where` refers to the new ones.
    """
    check_facets("where", where)
    groups: Curves = defaultdict(list)
    for run, curve in zip(runs, facets(runs, rename), strict=True):
        groups[curve].append(run)
    accepted = {name: [labels] if isinstance(labels, str) else list(labels) for name, labels in where.items()}
    for name, labels in accepted.items():
        known = {getattr(curve, name) for curve in groups}
        for label in labels:
            if label not in known:
                raise InputError(f"where.{name}", label, nearest(label, known))
    chosen = [c for c in ordered(groups) if all(getattr(c, name) in labels for name, labels in accepted.items())]
    if not chosen:
        raise InputError("where", dict(where), "labels that at least one run has together")
    return {curve: groups[curve] for curve in chosen}


def final_values(
    curves: Curves,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[str],
    spread: str = "none",
    beside: Path | None = None,
) -> list[str]:
    """Final values; `beside` is a CSV file of published accuracies in percent, shown next to ours."""
    if spread not in SPREADS:
        raise InputError("spread", spread, nearest(spread, SPREADS))
    grid = Grid(curves, rows, columns)
    head = [metric_label(in_words(name), name) for name in values]
    seeds = range_text([len(group) for group in curves.values()])
    window = range_text([final_window(int(run.config["rounds"])) for group in curves.values() for run in group])
    over = {
        "none": f"Mean over {seeds} seeds." if seeds != "1" else "One seed.",
        "std": f"Mean ± standard deviation over {seeds} seeds.",
        "range": f"Lowest to highest of {seeds} seeds.",
    }[spread]
    caption = f"{' / '.join(head).capitalize()}. {over} Final values are means over the last {window} rounds."

    def cell(group: list[Run]) -> str:
        if all(run.state == "diverged" for run in group):
            return "diverged"
        return " / ".join(spread_text(finals(group, name), name, spread) for name in values) + diverged_text(group)

    if beside is not None:
        return [f"{caption} Difference: ours minus published, in points.", "", *_beside(grid, values, cell, beside)]
    return [f"{caption}{grid.bold_note(values[0])}", "", *grid.lines(cell, bold=values[0])]


def _beside(grid: Grid, values: Sequence[str], cell: Callable[[list[Run]], str], path: Path) -> list[str]:
    """Published accuracies, ours and their difference, in three columns per column of the grid."""
    if list(values) != ["test_accuracy"]:
        raise InputError("values", list(values), "['test_accuracy'] next to published accuracies")
    published = _published(path)
    heads = [
        f"{' · '.join(key)} {name}".strip() for key in grid.columns for name in ("published", "ours", "difference")
    ]
    table = [[", ".join(grid.row_names), *heads]]
    for row in grid.rows:
        cells = [" · ".join(row)]
        for key in grid.columns:
            curve, group = grid.cells.get((row, key), (None, []))
            other = None if curve is None else published.get((curve.task, curve.schedule, curve.algorithm))
            ours = finals(group, "test_accuracy")
            difference = f"{100 * np.mean(ours) - other:+.1f}" if other is not None and ours else ""
            cells += ["" if other is None else f"{other:.1f}", cell(group) if group else "", difference]
        table.append(cells)
    return markdown_lines(table)


def wins(curves: Curves, columns: Sequence[str], metric: str, reference: str) -> list[str]:
    """The panels (pattern, setting and seed) in which `reference` ends better than the others, and its margins."""
    algorithms = list(dict.fromkeys(curve.algorithm for curve in curves))
    if reference not in algorithms:
        raise InputError("reference", reference, nearest(reference, algorithms))
    for name in columns:
        if name not in _OF_PANEL:
            raise InputError("columns", name, nearest(name, _OF_PANEL))
    panels: dict[tuple[str, str, str, tuple[int, ...]], dict[str, float]] = defaultdict(dict)
    for curve, group in curves.items():
        for run in group:
            value = next(iter(finals([run], metric)), math.nan)
            panels[curve.task, curve.schedule, curve.setting, all_seeds(run)][curve.algorithm] = value
    margins: dict[tuple[str, Key], list[float]] = defaultdict(list)
    sign = 1 if _better(curves, metric) == "higher" else -1
    for (task, schedule, setting, _), by_algorithm in panels.items():
        labels = dict(zip(_OF_PANEL, (task, schedule, setting), strict=True))
        key = tuple(labels[name] for name in columns)
        for algorithm, value in by_algorithm.items():
            if algorithm != reference and reference in by_algorithm:
                margins[algorithm, key].append(sign * (by_algorithm[reference] - value))
    keys = list(dict.fromkeys(tuple(getattr(curve, name) for name in columns) for curve in curves))
    accuracy = is_percent(metric)
    scale, digits = (100, "+.1f") if accuracy else (1, "+.3g")
    table = [[f"{reference} against", *(" · ".join(key) for key in keys)]]
    for algorithm in algorithms:
        cells = []
        for key in keys:
            all_margins = margins.get((algorithm, key), [])
            values = [scale * margin for margin in all_margins if not math.isnan(margin)]
            ahead = sum(value > 0 for value in values)
            extent = " to ".join(signed_text(edge, digits) for edge in (min(values), max(values))) if values else ""
            without = len(all_margins) - len(values)  # of either algorithm
            parts = [f"{ahead} of {len(values)}, {extent}"] * bool(values) + [f"{without} without a result"] * bool(
                without
            )
            cells.append(", ".join(parts))
        if algorithm != reference:
            table.append([algorithm, *cells])
    unit = "points" if accuracy else "units of the metric"
    caption = (
        f"Panels (pattern and seed) in which {reference} ends with the better {in_words(metric)}, and the"
        f" smallest and largest margin in {unit}; a positive margin means that {reference} is ahead."
    )
    return [caption, "", *markdown_lines(table)]


def rounds_to(
    curves: Curves,
    rows: Sequence[str],
    columns: Sequence[str],
    metric: str,
    targets: Mapping[str, float],
    x: str = "round",
) -> list[str]:
    """Rounds and thousands of vectors, or with another x its amount and the rounds, until a target is reached.

    Args:
      curves: runs by curve.
      rows: facets of the rows.
      columns: facets of the columns.
      metric: the metric that has targets.
      targets: its target by task.
      x: "round", "time" (simulated seconds) or "bytes".
    """
    if x not in ("round", *_AMOUNTS):
        raise InputError("x", x, nearest(x, ("round", *_AMOUNTS)))
    if not targets:
        raise InputError("targets", dict(targets), "a table with a number per task")
    grid = Grid({curve: group for curve, group in curves.items() if curve.task in targets}, rows, columns)
    for task in targets:
        if all(curve.task != task for curve in curves):
            raise InputError("targets", task, nearest(task, {curve.task for curve in curves}))
    less = _better(curves, metric) == "lower"
    task_of = {id(run): curve.task for curve, group in curves.items() for run in group}

    def cell(group: list[Run]) -> str:
        reached = []
        for run in group:
            target, measured = targets[task_of[id(run)]], column(run, metric)
            rounds = measured.index[measured <= target if less else measured >= target]
            if len(rounds):
                row = next(row for row in run.rows if row["round"] == rounds[0])
                if x not in row:
                    raise InputError("x", x, f"{run.folder} has no simulated time; it ran without devices")
                costs = (row["round"], row["communication"] / 1000)
                reached.append((row[x] / _AMOUNTS[x][1], row["round"]) if x in _AMOUNTS else costs)
        if not reached:
            return "never"
        first, second = np.mean(reached, axis=0)
        never = len(group) - len(reached)
        shown = f"{first:.4g} ({second:.0f})" if x in _AMOUNTS else f"{first:.0f} ({second:.1f})"
        return shown + (f", never in {never} of {len(group)}" if never else "")

    said = ", ".join(
        f"{number_text(value, metric)}{'%' if is_percent(metric) else ''} on {task}" for task, value in targets.items()
    )
    costs = (_AMOUNTS[x][0], "rounds") if x in _AMOUNTS else ("Rounds", "thousands of vectors sent")
    reaches = f"the {in_words(metric)} reaches {said}"
    caption = f"{costs[0]}, and in brackets {costs[1]}, until {reaches}. Mean over seeds."
    return [caption, "", *grid.lines(cell)]


def at_rounds(curves: Curves, rows: Sequence[str], metric: str, rounds: Sequence[int]) -> list[str]:
    """A metric at chosen rounds, one column per round; the mean over seeds."""
    if not rounds:
        raise InputError("rounds", list(rounds), "a list of rounds")
    grid = Grid(curves, rows, [])
    table = [[", ".join(rows), *(f"round {t}" for t in rounds)]]
    for row in grid.rows:
        _, group = grid.cells[row, ()]
        measured = [column(run, metric) for run in group]
        by_round = [[float(values[t]) for values in measured if t in values.index] for t in rounds]
        table.append([" · ".join(row), *(spread_text(values, metric, "none") for values in by_round)])
    return [f"{metric_label(in_words(metric), metric).capitalize()} by round.", "", *markdown_lines(table)]


def delay_table(curves: Curves) -> list[str]:
    """Delay and error of every pattern."""
    measured = delays([run for group in curves.values() for run in group]).sort_values("tau_avg", kind="stable")
    table = [["pattern", "tau_max", "tau_avg", "mean delay", "error"]]
    for row in measured.to_dict("records"):
        numbers = [f"{row[name]:.3g}" for name in ("tau_max", "tau_avg", "mean_delay", "error")]
        table.append([str(row["schedule"]), *numbers])
    caption = (
        "tau_max and tau_avg: the maximum and the mean over rounds of the longest absence of any client. Mean delay:"
        " the mean absence of all clients. Error: the mean squared gradient norm over all rounds. Means over seeds."
    )
    return [caption, "", *markdown_lines(table)]


def _better(curves: Curves, metric: str) -> Better:
    """The direction of the metric; refuses one whose direction nothing states."""
    better = direction(metric, directions(run for group in curves.values() for run in group))
    if better is None:
        raise InputError("values", metric, "nothing states whether higher or lower is better; use fedsum.Metric")
    return better


def _published(path: Path) -> dict[tuple[str, str, str], float]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return {(row["task"], row["schedule"], row["algorithm"]): float(row["value"]) for row in rows}
    except (OSError, KeyError, ValueError) as error:
        accepted = f"a CSV file with the columns task, schedule, algorithm and value ({error})"
        raise InputError("beside", str(path), accepted) from error
