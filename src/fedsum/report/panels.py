"""The paper's figures: panels for tasks and patterns, a curve for each algorithm, mean and band over seeds."""

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
from ..base.metrics import LABELS, smaller_is_better
from ..figures import COLOURS, stacked_bars, wrapped
from ..runs import Run
from .facets import DASHES, FACETS, LAYERS, Facets, compared, facets, styles, values
from .table import COSTS, column, metrics

_PANEL = (2.35, 1.75)
_WIDEST = 4
"""panels of a metric beside each other, where they need not be: more are too small on a page"""
_LEGEND_LINE = 0.2
_LETTER = 0.068
"""inches, of the legend's text"""
CROSS = "x"
TEXT = {"title": 8.5, "label": 8.0, "tick": 7.0}


def grid(
    runs: Sequence[Run],
    *,
    x: str = "round",
    y: str | Sequence[str] = ("train_loss", "test_accuracy"),
    last: int | None = None,
    compare: str | None = None,
    title: str = "",
) -> Figure:
    """Rows: tasks and metrics; columns: participation patterns; a curve for each of what is compared.

    Args:
      runs: from `fedsum.report.read_runs`.
      x: "round", "communication", "bytes" or "seconds".
      y: one metric, or several, a row of panels each.
      last: only the last so many rounds, on axes that fit them.
      compare: "algorithm", "schedule", "setting" or "task"; the first of them that varies unless given.
      title: over all.

    Lines are means over seeds, bands go from the lowest seed to the highest. A cross ends a run that diverged.
    """
    ys = (y,) if isinstance(y, str) else tuple(y)
    _check(runs, x, ys, last, compare)
    known = facets(runs)
    compare = compare or compared(known)
    labels = values(known, compare)
    places = styles(labels, compare)
    rows, columns = _layout(known, ys, compare)
    width = _PANEL[0] * len(columns) + 0.5
    # In the legend an entry has room for its line and its longest text.
    beside = max(1, int(width / (0.65 + _LETTER * max(map(len, labels)))))
    lines = math.ceil(len(labels) / beside)
    size = (width, _PANEL[1] * len(rows) + 0.5 + _LEGEND_LINE * lines)
    figure = Figure(figsize=size, layout="constrained")
    one_scale = all("task" not in across and "y" not in across for across in columns)
    axes = figure.subplots(len(rows), len(columns), squeeze=False, sharey="row" if one_scale else False)
    varying = [name for name in FACETS if len(values(known, name)) > 1]
    for i, row in enumerate(rows):
        held: list[list[float]] = [[] for _ in columns]
        shown = [""] * len(columns)
        for j, across in enumerate(columns):
            ax, cell = axes[i, j], row | across
            name = cell.pop("y")
            here = [
                (run, each)
                for run, each in zip(runs, known, strict=True)
                if all(getattr(each, facet) == value for facet, value in cell.items())
            ]
            held[j] = _panel(ax, here, places, compare, x, name, last)
            shown[j] = name
            if i == 0:
                ax.set_title(_head(across, varying), fontsize=TEXT["title"])
            if i == len(rows) - 1:
                ax.set_xlabel(LABELS.get(x, x), fontsize=TEXT["label"])
            if j == 0 or "y" in across:
                head, text = _head(row, varying), LABELS.get(name, name)
                ax.set_ylabel(f"{head}\n{text}" if head else text, fontsize=TEXT["label"])
        for j, ax in enumerate(axes[i]):
            scale(ax, shown[j], [value for each in held for value in each] if one_scale else held[j])
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
    """The heterogeneity figure: samples of each client by label, a panel for each set, `Partition.counts`."""
    figure = Figure(figsize=(7.0, 2.5 * len(counts)), layout="constrained")
    for ax, (name, each) in zip(figure.subplots(len(counts), 1, squeeze=False)[:, 0], counts.items(), strict=True):
        stacked_bars(ax, each)
        ax.set_title(name, fontsize=TEXT["title"])
    return figure


def mean_curve(runs: Sequence[Run], x: str, y: str, last: int | None = None) -> pd.DataFrame:
    """By round: x and the mean, lowest and highest y over the runs that got there."""
    pieces = []
    for run in runs:
        of_run = column(run, y).rename("y").to_frame()
        costs = run.metrics.set_index("round")
        of_run["x"] = of_run.index if x == "round" else costs[x].reindex(of_run.index) if x in costs else np.nan
        # Counted from the end that was asked for: seeds that stopped early are not there any more.
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
    if x not in ("round", *COSTS):
        raise InputError("x", x, nearest(x, ("round", *COSTS)))
    known = metrics(runs)
    for name in ys:
        if name not in known:
            raise InputError("y", name, nearest(name, known))
    if last is not None:
        integer("last", last, low=1)
    if compare is not None and compare not in FACETS:
        raise InputError("compare", compare, nearest(compare, FACETS))


def _layout(
    known: Sequence[Facets], ys: Sequence[str], compare: str
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """What rows and columns stand for: values of facets, and of `y`, which one or the other has."""

    def cross(names: Sequence[str]) -> list[dict[str, str]]:
        order = {name: values(known, name) for name in names}
        seen = {tuple(getattr(each, name) for name in names) for each in known}
        ranked = sorted(seen, key=lambda combo: [order[n].index(v) for n, v in zip(names, combo, strict=True)])
        return [dict(zip(names, combo, strict=True)) for combo in ranked]

    columns = cross([name for name in ("schedule",) if name != compare])
    rows = cross([name for name in ("task", "algorithm", "setting") if name != compare])
    metrics = [{"y": y} for y in ys]
    # Wide rather than high, as a page is read.
    if len(columns) == 1 and (len(rows) == 1 or len(rows) > _WIDEST):
        return [row | columns[0] for row in rows], metrics
    if len(columns) == 1:
        return [columns[0] | metric for metric in metrics], rows
    return [row | metric for row in rows for metric in metrics], columns


def _head(shown: Mapping[str, str], varying: Sequence[str]) -> str:
    # A task is named even if there is no other: the picture may lie beside one of another task.
    return ", ".join(text for name, text in shown.items() if text and (name in varying or name == "task"))


def _panel(
    ax: Axes,
    here: Sequence[tuple[Run, Facets]],
    places: Mapping[str, int],
    compare: str,
    x: str,
    y: str,
    last: int | None,
) -> list[float]:
    """Draws the curves; returns the values that the scale is made for, those of runs that held."""
    held: list[float] = []
    for label in sorted(places, key=lambda label: LAYERS.index(places[label])):
        group = [run for run, each in here if getattr(each, compare) == label]
        curve = mean_curve(group, x, y, last) if group else pd.DataFrame()
        if curve.empty:
            continue
        style = look(places[label])
        ax.plot(curve["x"], curve["mean"], **style)
        if curve["runs"].max() > 1:
            ax.fill_between(curve["x"], curve["low"], curve["high"], color=style["color"], alpha=0.18, linewidth=0)
        for run in group:
            ends = mean_curve([run], x, y, last)
            if run.state != "diverged":
                held += ends["mean"].tolist()
            elif not ends.empty:
                ax.plot(
                    ends["x"].iloc[-1], ends["mean"].iloc[-1], CROSS, color=style["color"], markersize=5, clip_on=False
                )
    if not ax.lines:
        ax.text(0.5, 0.5, "no runs", transform=ax.transAxes, ha="center", va="center", color="0.4", fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=TEXT["tick"])
    ax.grid(color="0.92", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.xaxis.set_major_locator(MaxNLocator(integer=x != "seconds", nbins=5, steps=[1, 2, 2.5, 5, 10]))
    if x != "round":
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    return held


def scale(ax: Axes, y: str, held: Sequence[float]) -> None:
    """One that fits the runs that held; one that diverged leaves the picture, with its cross on the edge."""
    log = smaller_is_better(y)
    if log:
        ax.set_yscale("log")
    fit = [value for value in held if value > 0 or not log]
    if fit and min(fit) < max(fit):
        low, high = min(fit), max(fit)
        room = (high / low) ** 0.05 if log else 0.05 * (high - low)
        bottom, top = (low / room, high * room) if log else (low - room, high + room)
        ax.set_ylim(bottom, top)
        for line in ax.lines:
            if line.get_marker() == CROSS:
                line.set_ydata(np.clip(line.get_ydata(), bottom, top))
    if y.endswith("accuracy"):
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    elif log:
        _plain_ticks(ax)


def _plain_ticks(ax: Axes) -> None:
    """On less than three decades a logarithmic axis would have few numbers or none."""
    low, high = ax.get_ylim()
    if high < 1000 * low:
        tens = 10.0 ** np.arange(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for steps in ((1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
            ticks = [float(f"{step * ten:.3g}") for ten in tens for step in steps if low <= step * ten <= high]
            if len(ticks) >= 4:
                ax.yaxis.set_major_locator(FixedLocator(ticks))
                break
        else:
            ax.yaxis.set_major_locator(MaxNLocator(nbins=5))
        ax.yaxis.set_major_formatter("{x:.3g}")
        ax.yaxis.set_minor_formatter(NullFormatter())


def look(place: int) -> dict[str, Any]:
    """How matplotlib draws the curve in that place."""
    dash = DASHES[place]
    return {"color": COLOURS[place], "linestyle": (0, dash) if dash else "-", "linewidth": 1.2 if dash else 1.8}
