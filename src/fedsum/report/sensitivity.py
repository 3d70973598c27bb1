"""What the algorithms came to, against a number that a sweep varied: how much it matters what one chooses."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from ..base.metrics import LABELS, smaller_is_better
from ..figures import wrapped
from ..runs import Run
from .facets import LAYERS, styles
from .panels import CROSS, TEXT, look, scale
from .table import final

_PANEL = (3.3, 2.5)


def settings(runs: Sequence[Run]) -> pd.DataFrame | None:
    """`final`, with the name and the value of the setting, the one number that runs of an algorithm differ by; None
    where there is no such number."""
    table = final(runs)
    split = table["setting"].str.split("=", expand=True).reindex(columns=[0, 1])
    table["name"], table["value"] = split[0], pd.to_numeric(split[1], errors="coerce")
    return None if table["value"].isna().any() else table


def against_setting(table: pd.DataFrame, y: Sequence[str] = ("train_loss", "test_accuracy"), title: str = "") -> Figure:
    """Columns: metrics; rows: tasks, and patterns where there are several.

    `table` is from `settings`; drawn are means over the last 50 rounds and the seeds, and their standard deviation.
    Where all runs of a setting diverged there is a cross on the edge.
    """
    by = ["task"] if table["schedule"].nunique() == 1 else ["task", "schedule"]
    rows, algorithms = list(table.groupby(by, sort=False)), list(dict.fromkeys(table["algorithm"]))
    places = styles(algorithms, "algorithm")
    figure = Figure(figsize=(_PANEL[0] * len(y) + 1.2, _PANEL[1] * len(rows) + 0.4), layout="constrained")
    for (names, here), axes in zip(rows, figure.subplots(len(rows), len(y), squeeze=False), strict=True):
        for ax, metric in zip(axes, y, strict=True):
            mean, spread = f"{metric}_last", f"{metric}_last_std"
            # `scale` brings what is beyond an edge to it.
            edge = np.inf if smaller_is_better(metric) else -np.inf
            for name in sorted(algorithms, key=lambda name: LAYERS.index(places[name])):
                of_one, style = here[here["algorithm"] == name].sort_values("value"), look(places[name])
                held = of_one.dropna(subset=mean)
                ax.errorbar(held["value"], held[mean], held[spread].fillna(0), marker="o", markersize=3, **style)
                gone = of_one["value"][of_one["diverged"] == of_one["runs"]]
                for value in gone:
                    ax.plot(value, edge, CROSS, color=style["color"], markersize=6, clip_on=False)
            scale(ax, metric, here[mean].dropna().tolist())
            ax.set_xscale("log")
            ax.xaxis.set_major_locator(FixedLocator(sorted(set(here["value"]))))
            ax.xaxis.set_minor_locator(NullLocator())
            ax.xaxis.set_major_formatter("{x:g}")
            ax.set_xlabel(here["name"].iloc[0], fontsize=TEXT["label"])
            ax.set_ylabel(f"{', '.join(map(str, names))}\n{LABELS.get(metric, metric)}", fontsize=TEXT["label"])
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
