"""Metrics over rounds. Drawn without pyplot, so that no global state changes."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from ..base.metrics import in_words, is_percent
from .curve_style import styles
from .notebook_figure import NotebookFigure
from .style import COLOURS, label_axes, wrapped
from .value_axis import PercentTicks

_STYLES = ("-", "--", "-.", ":", (0, (6, 1)))
_LOGARITHMIC = ("error", "train_loss")


def curves(runs: Mapping[str, pd.DataFrame], columns: Sequence[str], title: str = "", x: str = "round") -> Figure:
    """One panel per column, one curve per run, over rounds or a cost.

    Args:
      runs: one table of metrics per label, with the column `x`. An algorithm's label gives its curve its colour.
      columns: the metrics to draw.
      title: the figure's title, above all panels.
      x: the column on the horizontal axis, such as `round` or `time`.
    """
    width = 6.0 if len(columns) == 1 else 4.5 * len(columns)
    figure = NotebookFigure(figsize=(width, 4.0), layout="constrained")
    places = styles(list(runs), "algorithm")
    axes = figure.subplots(1, len(columns), squeeze=False)[0]
    for ax, column in zip(axes, columns, strict=True):
        for number, (name, metrics) in enumerate(runs.items()):
            # Curves of the FedSUM family coincide. Thinner, dashed lines on top leave the lines below visible.
            ax.plot(
                metrics[x],
                metrics[column],
                label=name,
                color=COLOURS[places[name]],
                linestyle=_STYLES[number % len(_STYLES)],
                linewidth=max(1.4, 2.6 - 0.4 * number),
            )
        if column in _LOGARITHMIC:
            ax.set_yscale("log")
        if is_percent(column):
            ax.yaxis.set_major_formatter(PercentTicks())
        label_axes(ax, in_words(x), in_words(column))
    if len(runs) > 1:
        axes[0].legend(frameon=False)  # the panels have the same curves
    if title:
        figure.suptitle(wrapped(title, figure.get_figwidth()))
    return figure
