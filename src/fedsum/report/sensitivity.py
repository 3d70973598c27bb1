"""Sensitivity: the algorithms' final values against one number that a sweep varied, such as a learning rate."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from ..base.metrics import Better, better, in_words
from ..figures import CROSS, LAYERS, scale, styles, wrapped
from ..runs import Run
from .looks import look
from .panels import TEXT
from .table import final_table

_PANEL = (3.3, 2.5)


def setting_table(runs: Sequence[Run]) -> pd.DataFrame | None:
    """The table of `final_table` with the columns `name` and `value` of the setting in which the runs differ.

    None unless the runs of an algorithm differ in exactly one number.
    """
    table = final_table(runs)
    split = table["setting"].str.split("=", expand=True).reindex(columns=[0, 1])
    table["name"], table["value"] = split[0], pd.to_numeric(split[1], errors="coerce")
    return None if table["value"].isna().any() else table


def against_setting(
    table: pd.DataFrame,
    y: Sequence[str] = ("train_loss", "test_accuracy"),
    title: str = "",
    stated: Mapping[str, Better] | None = None,
) -> Figure:
    """A figure of final values against a setting. Columns: metrics. Rows: tasks, and patterns if there are several.

    Points are means of the final values over the seeds, error bars their standard deviation. A cross at the edge
    marks a setting whose runs all diverged.

    Args:
      table: from `setting_table`.
      y: the metrics.
      title: the figure's title, above all panels.
      stated: directions of the tasks' own metrics, from `directions`.
    """
    by = ["task"] if table["schedule"].nunique() == 1 else ["task", "schedule"]
    rows, algorithms = list(table.groupby(by, sort=False)), list(dict.fromkeys(table["algorithm"]))
    places = styles(algorithms, "algorithm")
    figure = Figure(figsize=(_PANEL[0] * len(y) + 1.2, _PANEL[1] * len(rows) + 0.4), layout="constrained")
    for (names, row_table), axes in zip(rows, figure.subplots(len(rows), len(y), squeeze=False), strict=True):
        for ax, metric in zip(axes, y, strict=True):
            mean, spread = f"{metric}_last", f"{metric}_last_std"
            # `scale` moves crosses beyond an edge to the edge.
            edge = {"lower": np.inf, "higher": -np.inf, None: np.nan}[better(metric, stated or {})]
            for name in sorted(algorithms, key=lambda name: LAYERS.index(places[name])):
                of_algorithm = row_table[row_table["algorithm"] == name].sort_values("value")
                style, points = look(places[name]), of_algorithm.dropna(subset=mean)
                ax.errorbar(points["value"], points[mean], points[spread].fillna(0), marker="o", markersize=3, **style)
                diverged = of_algorithm["value"][of_algorithm["diverged"] == of_algorithm["runs"]]
                for value in diverged:
                    ax.plot(value, edge, CROSS, color=style["color"], markersize=6, clip_on=False)
            scale(ax, metric, row_table[mean].dropna().tolist())
            ax.set_xscale("log")
            ax.xaxis.set_major_locator(FixedLocator(sorted(set(row_table["value"]))))
            ax.xaxis.set_minor_locator(NullLocator())
            ax.xaxis.set_major_formatter("{x:g}")
            ax.set_xlabel(row_table["name"].iloc[0], fontsize=TEXT["label"])
            ax.set_ylabel(f"{', '.join(map(str, names))}\n{in_words(metric)}", fontsize=TEXT["label"])
            ax.tick_params(labelsize=TEXT["tick"])
            ax.grid(color="0.92", linewidth=0.6)
            ax.spines[["top", "right"]].set_visible(False)
    figure.legend(
        handles=[Line2D([], [], label=name, **look(places[name])) for name in algorithms],
        loc="outside right center",
        frameon=False,
        fontsize=TEXT["label"],
        handlelength=3.2,
    )
    if title:
        figure.suptitle(wrapped(title, figure.get_figwidth()), fontsize=TEXT["title"] + 1)
    return figure
