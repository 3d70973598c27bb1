"""Runs as Markdown tables: final values, wins of one algorithm, rounds to a target, delays.

A column key or a row key is a tuple of facets, such as a task and a pattern.
"""

import csv
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..base.checks import InputError, nearest
from ..base.metrics import LABELS, final_value, final_window, smaller_is_better
from ..runs import Run
from .against_delay import delays
from .facets import FACETS, Facets, facets, ordered
from .facets import values as distinct_labels
from .table import column

Curves = dict[Facets, list[Run]]
Key = tuple[str, ...]
SPREADS = ("none", "std", "range")


def curves_of(
    runs: Sequence[Run], where: Mapping[str, str | Sequence[str]], rename: Mapping[str, str] | None = None
) -> Curves:
    """The runs of every curve whose facets have the labels in `where`, in the order of the report.

    `rename` replaces labels; `where` refers to the new ones.
    """
    _check_facets("where", where)
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
    grid = _Grid(curves, rows, columns)
    head = [_label(LABELS.get(name, name), name) for name in values]
    seeds = _range([len(group) for group in curves.values()])
    window = _range([final_window(int(run.config["rounds"])) for group in curves.values() for run in group])
    over = {
        "none": f"Mean over {seeds} seeds." if seeds != "1" else "One seed.",
        "std": f"Mean ± standard deviation over {seeds} seeds.",
        "range": f"Lowest to highest of {seeds} seeds.",
    }[spread]
    caption = f"{' / '.join(head).capitalize()}. {over} Final values are means over the last {window} rounds."

    def cell(group: list[Run]) -> str:
        if all(run.state == "diverged" for run in group):
            return "diverged"
        return " / ".join(_spread(_finals(group, name), name, spread) for name in values) + _diverged(group)

    if beside is None:
        return [f"{caption}{grid.bold_note(values[0])}", "", *grid.lines(cell, bold=values[0])]
    if list(values) != ["test_accuracy"]:
        raise InputError("values", list(values), "['test_accuracy'] next to published accuracies")
    published = _published(beside)
    lines = [f"{caption} Difference: ours minus published, in points.", ""]
    names = [
        f"{' · '.join(key)} {name}".strip() for key in grid.columns for name in ("published", "ours", "difference")
    ]
    table = [[", ".join(rows), *names]]
    for row in grid.rows:
        cells = ["·".join(row)]
        for key in grid.columns:
            curve, group = grid.cells.get((row, key), (None, []))
            other = None if curve is None else published.get((curve.task, curve.schedule, curve.algorithm))
            ours = _finals(group, "test_accuracy")
            difference = f"{100 * np.mean(ours) - other:+.1f}" if other is not None and ours else ""
            cells += ["" if other is None else f"{other:.1f}", cell(group) if group else "", difference]
        table.append(cells)
    return lines + _table(table)


def wins(curves: Curves, columns: Sequence[str], metric: str, reference: str) -> list[str]:
    """The panels (pattern, setting and seed) in which `reference` ends better than the others, and its margins."""
    algorithms = list(dict.fromkeys(curve.algorithm for curve in curves))
    if reference not in algorithms:
        raise InputError("reference", reference, nearest(reference, algorithms))
    _check_facets("columns", columns)
    panels: dict[tuple[str, str, str, int], dict[str, float]] = defaultdict(dict)
    for curve, group in curves.items():
        for run in group:
            for value in _finals([run], metric):
                panels[curve.task, curve.schedule, curve.setting, run.config.get("seed", 0)][curve.algorithm] = value
    margins: dict[tuple[str, Key], list[float]] = defaultdict(list)
    sign = -1 if smaller_is_better(metric) else 1
    for (task, schedule, setting, _), by_algorithm in panels.items():
        labels = {"task": task, "schedule": schedule, "setting": setting}
        key = tuple(labels[name] for name in columns)
        for algorithm, value in by_algorithm.items():
            if algorithm != reference and reference in by_algorithm:
                margins[algorithm, key].append(sign * (by_algorithm[reference] - value))
    keys = list(dict.fromkeys(tuple(getattr(curve, name) for name in columns) for curve in curves))
    accuracy = metric.endswith("accuracy")
    scale, digits = (100, "+.1f") if accuracy else (1, "+.3g")
    table = [[f"{reference} against", *(" · ".join(key) for key in keys)]]
    for algorithm in algorithms:
        cells = []
        for key in keys:
            values = [scale * margin for margin in margins.get((algorithm, key), [])]
            ahead = sum(value > 0 for value in values)
            extent = " to ".join(_signed(edge, digits) for edge in (min(values), max(values))) if values else ""
            cells.append(f"{ahead} of {len(values)}, {extent}" if values else "")
        if algorithm != reference:
            table.append([algorithm, *cells])
    unit = "points" if accuracy else "units of the metric"
    caption = (
        f"Panels (pattern and seed) in which {reference} ends with the better {LABELS.get(metric, metric)}, and the"
        f" smallest and largest margin in {unit}; a positive margin means that {reference} is ahead."
    )
    return [caption, "", *_table(table)]


def rounds_to(
    curves: Curves, rows: Sequence[str], columns: Sequence[str], metric: str, targets: Mapping[str, float]
) -> list[str]:
    """Rounds, and thousands of vectors, until a target is first reached; one target per task."""
    grid = _Grid({curve: group for curve, group in curves.items() if curve.task in targets}, rows, columns)
    for task in targets:
        if all(curve.task != task for curve in curves):
            raise InputError("targets", task, nearest(task, {curve.task for curve in curves}))
    less = smaller_is_better(metric)
    task_of = {id(run): curve.task for curve, group in curves.items() for run in group}

    def cell(group: list[Run]) -> str:
        reached = []
        for run in group:
            target = targets[task_of[id(run)]]
            for row in run.rows:
                if metric in row and (row[metric] <= target if less else row[metric] >= target):
                    reached.append((row["round"], row["communication"] / 1000))
                    break
        if not reached:
            return "never"
        t, vectors = np.mean(reached, axis=0)
        never = len(group) - len(reached)
        return f"{t:.0f} ({vectors:.1f})" + (f", never in {never} of {len(group)}" if never else "")

    said = ", ".join(f"{_number(value, metric)}{'%' if not less else ''} on {task}" for task, value in targets.items())
    caption = (
        f"Rounds, and in brackets thousands of vectors sent, until the {LABELS.get(metric, metric)} reaches {said}."
        " Mean over seeds."
    )
    return [caption, "", *grid.lines(cell)]


def at_rounds(curves: Curves, rows: Sequence[str], metric: str, rounds: Sequence[int]) -> list[str]:
    """A metric at chosen rounds, one column per round; the mean over seeds."""
    if not rounds:
        raise InputError("rounds", list(rounds), "a list of rounds")
    grid = _Grid(curves, rows, [])
    table = [[", ".join(rows), *(f"round {t}" for t in rounds)]]
    for row in grid.rows:
        _, group = grid.cells[row, ()]
        measured = [{int(line["round"]): line[metric] for line in run.rows if metric in line} for run in group]
        found = [[values[t] for values in measured if t in values] for t in rounds]
        table.append([" · ".join(row), *(_spread(values, metric, "none") for values in found)])
    return [f"{_label(LABELS.get(metric, metric), metric).capitalize()} by round.", "", *_table(table)]


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
    return [caption, "", *_table(table)]


class _Grid:
    """Curves arranged by the facets of rows and columns."""

    def __init__(self, curves: Curves, rows: Sequence[str], columns: Sequence[str]) -> None:
        _check_facets("rows", rows)
        _check_facets("columns", columns)
        self.row_names = rows
        self.cells: dict[tuple[Key, Key], tuple[Facets, list[Run]]] = {}
        for curve, group in curves.items():
            place = tuple(getattr(curve, name) for name in rows), tuple(getattr(curve, name) for name in columns)
            if place in self.cells:
                free = [n for n in FACETS if n not in (*rows, *columns)]
                raise InputError(
                    "rows", list(rows), f"two curves share a cell: add one of {', '.join(free)}, or use where"
                )
            self.cells[place] = curve, group
        position = {name: _positions(curves, name) for name in FACETS}
        self.rows = sorted({row for row, _ in self.cells}, key=lambda key: _rank(key, rows, position))
        self.columns = sorted({key for _, key in self.cells}, key=lambda key: _rank(key, columns, position))

    def lines(self, cell: Callable[[list[Run]], str], bold: str | None = None) -> list[str]:
        table = [[", ".join(self.row_names), *(" · ".join(filter(None, key)) or "value" for key in self.columns)]]
        best = {key: self._best(key, bold) for key in self.columns} if bold else {}
        for row in self.rows:
            cells = []
            for key in self.columns:
                text = cell(self.cells[row, key][1]) if (row, key) in self.cells else ""
                cells.append(f"**{text}**" if row in best.get(key, ()) else text)
            table.append([" · ".join(filter(None, row)), *cells])
        return _table(table)

    def bold_note(self, metric: str) -> str:
        return f" Bold: best mean {LABELS.get(metric, metric)} of the column." if len(self.rows) > 1 else ""

    def _best(self, key: Key, metric: str) -> list[Key]:
        """The rows with the best mean in this column; several if they are printed alike."""
        finals = {row: _finals(self.cells[row, key][1], metric) for row in self.rows if (row, key) in self.cells}
        means = {row: float(np.mean(values)) for row, values in finals.items() if values}
        if len(self.rows) < 2 or not means:
            return []
        printed = _number((min if smaller_is_better(metric) else max)(means.values()), metric)
        return [row for row, mean in means.items() if _number(mean, metric) == printed]


def _positions(curves: Curves, name: str) -> dict[str, int]:
    return {label: place for place, label in enumerate(distinct_labels(curves, name))}


def _rank(key: Key, names: Sequence[str], position: Mapping[str, Mapping[str, int]]) -> list[int]:
    return [position[name][label] for name, label in zip(names, key, strict=True)]


def _finals(group: Sequence[Run], metric: str) -> list[float]:
    """The final value of every finished run."""
    finished = [column(run, metric) for run in group if run.state == "finished"]
    return [
        final_value(dict(zip(series.index.tolist(), series.tolist(), strict=True)))
        for series in finished
        if len(series)
    ]


def _spread(values: Sequence[float], metric: str, spread: str) -> str:
    if not values:
        return ""
    mean = _number(float(np.mean(values)), metric)
    if spread == "none" or len(values) == 1:
        return mean
    if spread == "std":
        return f"{mean} ± {_number(float(np.std(values, ddof=1)), metric)}"
    low, high = _number(min(values), metric), _number(max(values), metric)
    return low if low == high else f"{low} to {high}"


def _diverged(group: Sequence[Run]) -> str:
    diverged = sum(run.state == "diverged" for run in group)
    return f" ({diverged} of {len(group)} diverged)" if diverged else ""


def _number(value: float, metric: str) -> str:
    return f"{100 * value:.1f}" if metric.endswith("accuracy") else f"{value:#.3g}".removesuffix(".")


def _signed(value: float, digits: str) -> str:
    text = f"{value:{digits}}"
    return text if float(text) else text.lstrip("+-")  # no minus zero


def _label(label: str, metric: str) -> str:
    return f"{label} in %" if metric.endswith("accuracy") else label


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _published(path: Path) -> dict[tuple[str, str, str], float]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return {(row["task"], row["schedule"], row["algorithm"]): float(row["value"]) for row in rows}
    except (OSError, KeyError, ValueError) as error:
        accepted = f"a CSV file with the columns task, schedule, algorithm and value ({error})"
        raise InputError("beside", str(path), accepted) from error


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *body = [f"| {' | '.join(cells)} |" for cells in rows]
    return [head, "|" + "---|" * len(rows[0]), *body]


def _check_facets(field: str, names: Sequence[str] | Mapping[str, object]) -> None:
    for name in names:
        if name not in FACETS:
            raise InputError(field, name, nearest(name, FACETS))
