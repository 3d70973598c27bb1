"""Curves in the rows and columns of a Markdown table, and the text of their cells."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..base.checks import InputError, nearest
from ..base.metrics import better, final_value, in_words, is_percent
from ..runs import Run, directions
from .facets import FACETS, Facets
from .facets import values as distinct_labels
from .table import column

Curves = dict[Facets, list[Run]]
Key = tuple[str, ...]
"""the facets of a row or of a column, such as a task and a pattern"""


class Grid:
    """Curves arranged by the facets of rows and columns."""

    def __init__(self, curves: Curves, rows: Sequence[str], columns: Sequence[str]) -> None:
        check_facets("rows", rows)
        check_facets("columns", columns)
        self.row_names, self._stated = rows, directions(run for group in curves.values() for run in group)
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
        return markdown_lines(table)

    def bold_note(self, metric: str) -> str:
        if len(self.rows) < 2 or better(metric, self._stated) is None:
            return ""
        finished = all(_all_finished(group) for _, group in self.cells.values())
        return f" Bold: best mean {in_words(metric)} of the column{'' if finished else ', of runs that all finished'}."

    def _best(self, key: Key, metric: str) -> list[Key]:
        """The rows with the best mean in this column; several if they are printed alike, none without a direction.

        Rows with unfinished runs are never the best: a mean over the seeds that finished would flatter them.
        """
        groups = {row: self.cells[row, key][1] for row in self.rows if (row, key) in self.cells}
        by_row = {row: finals(group, metric) for row, group in groups.items() if _all_finished(group)}
        means = {row: float(np.mean(values)) for row, values in by_row.items() if values}
        direction = better(metric, self._stated)
        if len(self.rows) < 2 or not means or direction is None:
            return []
        printed = number_text((max if direction == "higher" else min)(means.values()), metric)
        return [row for row, mean in means.items() if number_text(mean, metric) == printed]


def _positions(curves: Curves, name: str) -> dict[str, int]:
    return {label: place for place, label in enumerate(distinct_labels(curves, name))}


def _rank(key: Key, names: Sequence[str], position: Mapping[str, Mapping[str, int]]) -> list[int]:
    return [position[name][label] for name, label in zip(names, key, strict=True)]


def _all_finished(group: Sequence[Run]) -> bool:
    return all(run.state == "finished" for run in group)


def finals(group: Sequence[Run], metric: str) -> list[float]:
    """The final value of every finished run."""
    finished = [column(run, metric) for run in group if run.state == "finished"]
    return [
        final_value(dict(zip(series.index.tolist(), series.tolist(), strict=True)))
        for series in finished
        if len(series)
    ]


def spread_text(values: Sequence[float], metric: str, spread: str) -> str:
    if not values:
        return ""
    mean = number_text(float(np.mean(values)), metric)
    if spread == "none" or len(values) == 1:
        return mean
    if spread == "std":
        return f"{mean} ± {number_text(float(np.std(values, ddof=1)), metric)}"
    low, high = number_text(min(values), metric), number_text(max(values), metric)
    return low if low == high else f"{low} to {high}"


def diverged_text(group: Sequence[Run]) -> str:
    diverged = sum(run.state == "diverged" for run in group)
    return f" ({diverged} of {len(group)} diverged)" if diverged else ""


def number_text(value: float, metric: str) -> str:
    return f"{100 * value:.1f}" if is_percent(metric) else f"{value:#.3g}".removesuffix(".")


def signed_text(value: float, digits: str) -> str:
    text = f"{value:{digits}}"
    return text if float(text) else text.lstrip("+-")  # no minus zero


def metric_label(label: str, metric: str) -> str:
    return f"{label} in %" if is_percent(metric) else label


def range_text(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def markdown_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *body = [f"| {' | '.join(cells)} |" for cells in rows]
    return [head, "|" + "---|" * len(rows[0]), *body]


def check_facets(field: str, names: Sequence[str] | Mapping[str, object]) -> None:
    for name in names:
        if name not in FACETS:
            raise InputError(field, name, nearest(name, FACETS))
