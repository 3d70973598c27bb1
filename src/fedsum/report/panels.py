"""The paper's figures: one panel per task and pattern, one curve per algorithm, mean and band over seeds."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, FixedLocator, MaxNLocator, NullFormatter, PercentFormatter
from numpy.typing import NDArray

from ..base.checks import InputError, integer, nearest
from ..base.metrics import LABELS, is_logarithmic, is_percent
from ..figures import COLOURS, stacked_bars, wrapped
from ..runs import Run
from .facets import DASHES, FACETS, LAYERS, Facets, compared, facets, styles, values
from .table import column, cost_names, metric_names

_PANEL = (2.35, 1.75)
_WIDEST = 4
"""the most tasks, algorithms or settings side by side; more panels in a row are too small on a page"""
_LEGEND_LINE = 0.2
_LETTER = 0.068
"""mean width of a letter in the legend, in inches"""
CROSS = "x"
TEXT = {"title": 8.5, "label": 8.0, "tick": 7.0}


def panel_figure(
    runs: Sequence[Run],
    *,
    x: str = "round",
    y: str | Sequence[str] = ("train_loss", "test_accuracy"),
    last: int | None = None,
    compare: str | None = None,
    title: str = "",
    rename: Mapping[str, str] | None = None,
) -> Figure:
    """A grid of panels. Rows: tasks and metrics. Columns: participation patterns. One curve per value of `compare`.

    Args:
      runs: from `fedsum.report.read_runs`.
      x: "round", "communication", "bytes", "seconds", or "time" if runs have devices.
      y: one metric, or several metrics with one row of panels per metric.
      last: draw only the last `last` rounds, on axes that fit them.
      compare: "algorithm", "schedule", "setting" or "task"; default: the first of algorithm, schedule and setting
        that varies.
      title: the figure's title, above all panels.
      rename: other labels for tasks, patterns, algorithms and settings.

    Lines are means over seeds. Bands go from the lowest seed to the highest. A cross marks the end of a diverged run.
    """
    ys = (y,) if isinstance(y, str) else tuple(y)
    _check(runs, x, ys, last, compare)
    curves = facets(runs, rename)
    compare = compare or compared(curves)
    labels = values(curves, compare)
    places = styles(labels, compare)
    rows, columns = _layout(curves, ys, compare)
    width = _PANEL[0] * len(columns) + 0.5
    # A legend entry has room for its line and the longest label.
    entries_per_line = max(1, int(width / (0.65 + _LETTER * max(map(len, labels)))))
    lines = math.ceil(len(labels) / entries_per_line)
    size = (width, _PANEL[1] * len(rows) + 0.5 + _LEGEND_LINE * lines)
    figure = Figure(figsize=size, layout="constrained")
    shared_scale = all("task" not in column_facets and "y" not in column_facets for column_facets in columns)
    axes = figure.subplots(len(rows), len(columns), squeeze=False, sharey="row" if shared_scale else False)
    varying = [name for name in FACETS if len(values(curves, name)) > 1]
    for i, row_facets in enumerate(rows):
        panel_values: list[list[float]] = [[] for _ in columns]
        panel_metrics = [""] * len(columns)
        for j, column_facets in enumerate(columns):
            ax, cell = axes[i, j], row_facets | column_facets
            name = cell.pop("y")
            panel_runs = [
                (run, curve)
                for run, curve in zip(runs, curves, strict=True)
                if all(getattr(curve, facet) == value for facet, value in cell.items())
            ]
            panel_values[j] = _panel(ax, panel_runs, places, compare, x, name, last)
            panel_metrics[j] = name
            if i == 0:
                ax.set_title(_head(column_facets, varying), fontsize=TEXT["title"])
            if i == len(rows) - 1:
                ax.set_xlabel(LABELS.get(x, x), fontsize=TEXT["label"])
            if j == 0 or "y" in column_facets:
                head, text = _head(row_facets, varying), LABELS.get(name, name)
                ax.set_ylabel(f"{head}\n{text}" if head else text, fontsize=TEXT["label"])
        for j, ax in enumerate(axes[i]):
            row_values = [value for panel in panel_values for value in panel]
            scale(ax, panel_metrics[j], row_values if shared_scale else panel_values[j])
    handles = [Line2D([], [], label=label, **look(places[label])) for label in labels]
    if len(labels) > 1:
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=math.ceil(len(labels) / lines),
            frameon=False,
            fontsize=TEXT["label"],
            handlelength=3.2,
        )
    if title:
        figure.suptitle(wrapped(title, width), fontsize=TEXT["title"] + 1)
    return figure


def bars(counts: Mapping[str, NDArray[np.int64]]) -> Figure:
    """The heterogeneity figure: samples per client and label, one panel per entry of `counts` (`Partition.counts`)."""
    figure = Figure(figsize=(7.0, 2.5 * len(counts)), layout="constrained")
    axes = figure.subplots(len(counts), 1, squeeze=False)[:, 0]
    for ax, (title, samples) in zip(axes, counts.items(), strict=True):
        stacked_bars(ax, samples)
        ax.set_title(title, fontsize=TEXT["title"])
    return figure


def mean_curve(runs: Sequence[Run], x: str, y: str, last: int | None = None) -> pd.DataFrame:
    """Per round: x, and the mean, lowest and highest y over the runs that reached the round."""
    pieces = []
    for run in runs:
        of_run = column(run, y).rename("y").to_frame()
        costs = run.metrics.set_index("round")
        of_run["x"] = of_run.index if x == "round" else costs[x].reindex(of_run.index) if x in costs else np.nan
        # Count from the configured number of rounds, so that runs that stopped earlier contribute nothing.
        if last is not None:
            of_run = of_run[of_run.index > run.config.get("rounds", run.round) - last]
        pieces.append(of_run[np.isfinite(of_run["y"])])
    by_round = pd.concat(pieces).groupby(level=0)
    return pd.DataFrame(
        {
            "x": by_round["x"].mean(),
            "mean": by_round["y"].mean(),
            "low": by_round["y"].min(),
            "high": by_round["y"].max(),
            "runs": by_round["y"].size(),
        }
    )


def _check(runs: Sequence[Run], x: str, ys: Sequence[str], last: int | None, compare: str | None) -> None:
    if not runs:
        raise InputError("runs", [], "at least one run, from read_runs()")
    accepted = ("round", *cost_names(runs))
    if x not in accepted:
        raise InputError("x", x, nearest(x, accepted))
    names = metric_names(runs)
    for name in ys:
        if name not in names:
            raise InputError("y", name, nearest(name, names))
    if last is not None:
        integer("last", last, low=1)
    if compare is not None and compare not in FACETS:
        raise InputError("compare", compare, nearest(compare, FACETS))


def _layout(
    curves: Sequence[Facets], ys: Sequence[str], compare: str
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The facet values of each row and of each column; either the rows or the columns also have the metric, `y`."""

    def combinations(names: Sequence[str]) -> list[dict[str, str]]:
        order = {name: values(curves, name) for name in names}
        distinct = {tuple(getattr(curve, name) for name in names) for curve in curves}
        ranked = sorted(distinct, key=lambda combo: [order[n].index(v) for n, v in zip(names, combo, strict=True)])
        return [dict(zip(names, combo, strict=True)) for combo in ranked]

    columns = combinations([name for name in ("schedule",) if name != compare])
    rows = combinations([name for name in ("task", "algorithm", "setting") if name != compare])
    metric_cells = [{"y": y} for y in ys]
    # Wide rather than high, to fit a page.
    if len(columns) == 1 and (len(rows) == 1 or len(rows) > _WIDEST):
        return [row | columns[0] for row in rows], metric_cells
    if len(columns) == 1:
        return [columns[0] | metric for metric in metric_cells], rows
    return [row | metric for row in rows for metric in metric_cells], columns


def _head(cell: Mapping[str, str], varying: Sequence[str]) -> str:
    # A task is shown even if there is only one, because the figure may be next to a figure of another task.
    return ", ".join(text for name, text in cell.items() if text and (name in varying or name == "task"))


def _panel(
    ax: Axes,
    panel_runs: Sequence[tuple[Run, Facets]],
    places: Mapping[str, int],
    compare: str,
    x: str,
    y: str,
    last: int | None,
) -> list[float]:
    """Draws the curves of a panel. Returns the values of the runs that did not diverge, for `scale`."""
    stable_values: list[float] = []
    for label in sorted(places, key=lambda label: LAYERS.index(places[label])):
        group = [run for run, curve in panel_runs if getattr(curve, compare) == label]
        means = mean_curve(group, x, y, last) if group else pd.DataFrame()
        if means.empty:
            continue
        style = look(places[label])
        ax.plot(means["x"], means["mean"], **style)
        if means["runs"].max() > 1:
            ax.fill_between(means["x"], means["low"], means["high"], color=style["color"], alpha=0.18, linewidth=0)
        for run in group:
            of_run = mean_curve([run], x, y, last)
            if run.state != "diverged":
                stable_values += of_run["mean"].tolist()
            elif not of_run.empty:
                end_x, end_y = of_run["x"].iloc[-1], of_run["mean"].iloc[-1]
                ax.plot(end_x, end_y, CROSS, color=style["color"], markersize=5, clip_on=False)
    if not ax.lines:
        ax.text(0.5, 0.5, "no runs", transform=ax.transAxes, ha="center", va="center", color="0.4", fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=TEXT["tick"])
    ax.grid(color="0.92", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.xaxis.set_major_locator(MaxNLocator(integer=x not in ("seconds", "time"), nbins=5, steps=[1, 2, 2.5, 5, 10]))
    if x != "round":
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    return stable_values


def scale(ax: Axes, y: str, stable_values: Sequence[float]) -> None:
    """Scales the y axis to the values of the runs that did not diverge.

    Curves of diverged runs may leave the panel; their crosses are moved to its edge.
    """
    log = is_logarithmic(y)
    if log:
        ax.set_yscale("log")
    fit = [value for value in stable_values if value > 0 or not log]
    if fit and min(fit) < max(fit):
        low, high = min(fit), max(fit)
        margin = (high / low) ** 0.05 if log else 0.05 * (high - low)
        bottom, top = (low / margin, high * margin) if log else (low - margin, high + margin)
        ax.set_ylim(bottom, top)
        for line in ax.lines:
            if line.get_marker() == CROSS:
                line.set_ydata(np.clip(line.get_ydata(), bottom, top))
    if is_percent(y):
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    elif log:
        _plain_ticks(ax)


def _plain_ticks(ax: Axes) -> None:
    """Sets ticks on a logarithmic axis of less than three decades, which would have few tick labels or none."""
    low, high = ax.get_ylim()
    if high < 1000 * low:
        powers = 10.0 ** np.arange(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for factors in ((1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
            ticks = [float(f"{f * power:.3g}") for power in powers for f in factors if low <= f * power <= high]
            if len(ticks) >= 4:
                ax.yaxis.set_major_locator(FixedLocator(ticks))
                break
        else:
            ax.yaxis.set_major_locator(MaxNLocator(nbins=5))
        ax.yaxis.set_major_formatter("{x:.3g}")
        ax.yaxis.set_minor_formatter(NullFormatter())


def look(place: int) -> dict[str, Any]:
    """The line style of a curve, as matplotlib options; `place` is its index in COLOURS and DASHES."""
    dash = DASHES[place]
    return {"color": COLOURS[place], "linestyle": (0, dash) if dash else "-", "linewidth": 1.2 if dash else 1.8}
