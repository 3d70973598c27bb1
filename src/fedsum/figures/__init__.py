"""Drawing from plain tables and arrays, for History, Partition and the report. Nothing here reads a run."""

from .bars import label_colours, stacked_bars
from .curve_style import DASHES, LAYERS, PAPER_ALGORITHMS, styles
from .curves import curves
from .notebook_figure import NotebookFigure
from .plane import plane
from .raster import Participation, participation_figure
from .saving import check_path, save, save_small
from .style import COLOURS, wrapped
from .value_axis import CROSS, PercentTicks, scale

__all__ = [
    "COLOURS",
    "CROSS",
    "DASHES",
    "LAYERS",
    "PAPER_ALGORITHMS",
    "NotebookFigure",
    "Participation",
    "PercentTicks",
    "check_path",
    "curves",
    "label_colours",
    "participation_figure",
    "plane",
    "save",
    "save_small",
    "scale",
    "stacked_bars",
    "styles",
    "wrapped",
]
