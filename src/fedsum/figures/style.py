"""Colours, titles and axes of all figures. The colours are Okabe and Ito's, safe for colour-blind readers."""

import textwrap

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

# Their yellow, the ninth colour, is darkened, because a yellow line is hard to see on white. The last three are darker
# than theirs, to differ in lightness too.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#998C00"),
    *("#6A2C9C", "#7A4419", "#0B4F4A"),
)


def wrapped(title: str, inches: float) -> str:
    """The title, wrapped to a figure `inches` wide."""
    return "\n".join(textwrap.wrap(title, int(10 * inches)))


def label_axes(ax: Axes, x: str, y: str) -> None:
    """Axis labels, whole numbers on the x axis, and no frame at the top and the right."""
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.spines[["top", "right"]].set_visible(False)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins="auto"))
