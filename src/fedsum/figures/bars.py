"""Samples per client and label, as stacked bars."""

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize, to_hex
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

# Paul Tol's ten "muted" colours, safe for colour-blind readers. More than ten labels get a colour scale.
_COLOURS = (
    "#332288",
    "#DDCC77",
    "#117733",
    "#CC6677",
    "#88CCEE",
    "#882255",
    "#44AA99",
    "#999933",
    "#AA4499",
    "#BBBBBB",
)
_MOST_SEPARATED = 150
"""the most clients with a line between bars; with more clients, bars are too thin for it"""


def stacked_bars(ax: Axes, counts: NDArray[np.int64]) -> None:
    """Draws counts [clients, labels]: one bar per client, one colour per label."""
    n, labels = counts.shape
    colours = label_colours(labels)
    # One outline per label instead of one rectangle per client and label, so that ten thousand clients draw fast.
    edges, bottom = np.arange(n + 1) - 0.5, np.zeros(n)
    for label in range(labels):
        top = bottom + counts[:, label]
        ax.stairs(top, edges, baseline=bottom, fill=True, color=colours[label], label=f"{label}")
        bottom = top
    if n <= _MOST_SEPARATED:
        ax.vlines(edges, 0, bottom.max(), color="white", linewidth=1.0)
    if 1 < labels <= len(_COLOURS):
        # The legend has the order of the stack, top first.
        handles: list[list[Any]] = [entries[::-1] for entries in ax.get_legend_handles_labels()]
        ax.legend(
            *handles,
            title="label",
            frameon=False,
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            fontsize="small",
            labelspacing=0.3,
            handlelength=1.0,
        )
    elif labels > 1:
        scale = ScalarMappable(Normalize(0, labels - 1), ListedColormap(colours))
        ax.figure.colorbar(scale, ax=ax, label="label", pad=0.01)
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(bottom=0)
    ax.set_xlabel("client")
    ax.set_ylabel("samples")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins="auto", steps=[1, 2, 5, 10]))
    ax.spines[["top", "right"]].set_visible(False)


def label_colours(labels: int) -> list[str]:
    """One colour per label, as #rrggbb: distinct colours for up to ten labels, a colour scale for more."""
    if labels <= len(_COLOURS):
        return list(_COLOURS[:labels])
    return [to_hex(colour) for colour in colormaps["viridis"](np.linspace(0, 1, labels))]
