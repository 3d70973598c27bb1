"""Paths of models in two dimensions, over the contours of a loss."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from .style import COLOURS, wrapped

Points = NDArray[np.float64]
"""[n, 2]"""

_MARGIN = 0.15


def plane(
    loss: Callable[[Points], NDArray[np.float64]],
    paths: Mapping[str, Points],
    points: Mapping[str, Points],
    arrows: Sequence[tuple[str, Points, Points]] = (),
    title: str = "",
) -> Figure:
    """Draws paths and arrows over the contours of a loss.

    Args:
      loss: the loss of [n, 2] models, [n].
      paths: the models of a path in order, per label; the last one gets a larger marker.
      points: a named point, [2], per name.
      arrows: (label, tail [2], head [2]); arrows with the same label have the same colour and one legend entry.
      title: the figure's title.
    """
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    ax = figure.subplots()
    drawn = np.concatenate(
        [*paths.values(), *(point[None] for point in points.values()), *(np.stack(ends) for _, *ends in arrows)]
    )
    low, high = drawn.min(0), drawn.max(0)
    low, high = low - _MARGIN * (high - low), high + _MARGIN * (high - low)
    x, y = np.meshgrid(np.linspace(low[0], high[0], 80), np.linspace(low[1], high[1], 80))
    values = loss(np.stack([x.ravel(), y.ravel()], 1)).reshape(x.shape)
    ax.contour(x, y, values, levels=12, colors="0.85", linewidths=0.8)
    for number, (label, path) in enumerate(paths.items()):
        colour = COLOURS[number % len(COLOURS)]
        ax.plot(*path.T, "o-", label=label, color=colour, markersize=3.5, linewidth=1.6)
        ax.plot(*path[-1], "o", color=colour, markersize=7)
    labels = list(dict.fromkeys(label for label, _, _ in arrows))
    for label, tail, head in arrows:
        colour = COLOURS[(len(paths) + labels.index(label)) % len(COLOURS)]
        style = {"arrowstyle": "->", "color": colour, "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", xy=tuple(head), xytext=tuple(tail), arrowprops=style)
    for label in labels:
        ax.plot([], [], color=COLOURS[(len(paths) + labels.index(label)) % len(COLOURS)], label=label)
    for name, point in points.items():
        ax.plot(*point, "k*", markersize=10)
        # a name on the right half stands left of its point, so that it stays within the axes
        side, align = (-6, "right") if point[0] > (low[0] + high[0]) / 2 else (6, "left")
        ax.annotate(name, tuple(point), xytext=(side, 6), textcoords="offset points", ha=align)
    ax.set_xlim(low[0], high[0])
    ax.set_ylim(low[1], high[1])
    ax.set_xticks([])
    ax.set_yticks([])
    ax.legend(frameon=False, fontsize="small")
    if title:
        figure.suptitle(wrapped(title, figure.get_figwidth()))
    return figure
