"""The paper's figures: one panel per task and pattern, one curve per algorithm, mean and band over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator
from numpy.typing import NDArray

from ..base.checks import InputError, integer, nearest
from ..base.metrics import in_words, is_percent
from ..figures import CROSS, scale, stacked_bars, wrapped
from ..runs import Run
from .facets import FACETS, Facets, compared, facets, values
from .looks import Labels, legend, looks
from .table import column, cost_names, metric_names

_PANEL = (2.35, 1.75)
_WIDEST = 4
"""the most tasks, algorithms or settings side by side; more panels in a row are too small on a page"""
_LEGEND_LINE = 0.2
_LETTER = 0.068
"""mean width of a letter in the legend, in inches"""
_EARLY, _DIPS = 0.1, 0.05
"""the axis of an accuracy fits neither this first share of a run, nor this lowest share of the later values"""
TEXT = {"title": 8.5, "label": 8.0, "tick": 7.0}


def panel_figure(
    runs: Sequence[Run],
    *,
    x: str = "round",
    y: str | Sequence[str] = ("train_loss", "test_accuracy"),
    last: int | None = None,
    compare: str | None = None,
    dash: str | None = None,
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
        that varies. Each value has a colour.
      dash: another of these, whose values have a dash pattern each, for a comparison within a panel.
      title: the figure's title, above all panels.
      rename: other labels for tasks, patterns, algorithms and settings.

    Lines are means over seeds. Bands go from the lowest seed to the highest. A cross marks the end of a diverged run.
    Without `last`, points are `eval_every` rounds apart, also where more rounds were evaluated. Axes of accuracies fit
    the curves after the first tenth of the rounds, without the lowest twentieth of each run's values.
    """
    ys = (y,) if isinstance(y, str) else tuple(y)
    curves = facets(runs, rename) if runs else []
    compare = compare or compared(curves)
    _check(runs, x, ys, last, compare, dash)
    runs = [_thinned(run, last) for run in runs]
    curve_looks, handles = looks(curves, compare, dash), legend(curves, compare, dash)
    rows, columns = _layout(curves, ys, (compare, dash))
    width = _PANEL[0] * len(columns) + 0.5
    # A legend entry has room for its line and the longest label.
    longest = max((len(str(handle.get_label())) for handle in handles), default=0)
    entries_per_line = max(1, int(width / (0.65 + _LETTER * longest)))
    lines = math.ceil(len(handles) / entries_per_line)
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
                (run, (getattr(curve, compare), getattr(curve, dash) if dash else ""))
                for run, curve in zip(runs, curves, strict=True)
                if all(getattr(curve, facet) == value for facet, value in cell.items())
            ]
            panel_values[j] = _panel(ax, panel_runs, curve_looks, x, name, last)
            panel_metrics[j] = name
            if i == 0:
                ax.set_title(_head(column_facets, varying), fontsize=TEXT["title"])
            if i == len(rows) - 1:
                ax.set_xlabel(in_words(x), fontsize=TEXT["label"])
            if j == 0 or "y" in column_facets:
                head, text = _head(row_facets, varying), in_words(name)
                ax.set_ylabel(f"{head}\n{text}" if head else text, fontsize=TEXT["label"])
        for j, ax in enumerate(axes[i]):
            row_values = [value for panel in panel_values for value in panel]
            scale(ax, panel_metrics[j], row_values if shared_scale else panel_values[j])
    if handles:
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=math.ceil(len(handles) / lines),
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


def _check(runs: Sequence[Run], x: str, ys: Sequence[str], last: int | None, compare: str, dash: str | None) -> None:
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
    if compare not in FACETS:
        raise InputError("compare", compare, nearest(compare, FACETS))
    others = [name for name in FACETS if name != compare]
    if dash is not None and dash not in others:
        raise InputError("dash", dash, nearest(dash, others))


def _layout(
    curves: Sequence[Facets], ys: Sequence[str], within: Sequence[str | None]
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The facet values of each row and of each column; either the rows or the columns also have the metric, `y`.

    The facets `within` vary within the panels.
    """

    def combinations(names: Sequence[str]) -> list[dict[str, str]]:
        order = {name: values(curves, name) for name in names}
        distinct = {tuple(getattr(curve, name) for name in names) for curve in curves}
        ranked = sorted(distinct, key=lambda combo: [order[n].index(v) for n, v in zip(names, combo, strict=True)])
        return [dict(zip(names, combo, strict=True)) for combo in ranked]

    columns = combinations([name for name in ("schedule",) if name not in within])
    rows = combinations([name for name in ("task", "algorithm", "setting") if name not in within])
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


def _thinned(run: Run, last: int | None) -> Run:
    """The run with one row per `eval_every` rounds, and its last row, so that the last `eval_last` rounds are no blot.

    A zoom on these rounds shows them all.
    """
    if last is not None and last <= run.config.get("eval_last", 0):
        return run
    every = run.config.get("eval_every", 1)
    return replace(run, rows=[row for row in run.rows if row["round"] % every == 0 or row is run.rows[-1]])


def _panel(
    ax: Axes,
    panel_runs: Sequence[tuple[Run, Labels]],
    curve_looks: Mapping[Labels, Mapping[str, Any]],
    x: str,
    y: str,
    last: int | None,
) -> list[float]:
    """Draws the curves of a panel. Returns the values of the runs that did not diverge, for `scale`."""
    shown: list[float] = []
    for labels, style in curve_looks.items():
        group = [run for run, of_run in panel_runs if of_run == labels]
        means = mean_curve(group, x, y, last) if group else pd.DataFrame()
        if means.empty:
            continue
        ax.plot(means["x"], means["mean"], **style)
        if means["runs"].max() > 1:
            ax.fill_between(means["x"], means["low"], means["high"], color=style["color"], alpha=0.18, linewidth=0)
        for run in group:
            of_run = mean_curve([run], x, y, last)
            if run.state != "diverged":
                shown += _must_show(of_run["mean"], y)
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
    return shown


def _must_show(curve: "pd.Series[float]", y: str) -> list[float]:
    """The values of a run, by round, that its panel has to fit; all if the metric is not an accuracy.

    An accuracy starts at chance. If the axis did so too, differences at the end would be hidden.
    """
    if curve.empty or not is_percent(y):
        return curve.tolist()
    late = curve[curve.index > _EARLY * curve.index[-1]]
    return [*late[late >= late.quantile(_DIPS, interpolation="lower")], curve.max()]
