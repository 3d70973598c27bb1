"""Reports on finished and running runs: tables, figures and an HTML page. Imports pandas and matplotlib."""

from ..runs import Run, read_runs
from .advice import rate_advice
from .against_delay import against_delay, delays
from .comparison import Comparison, Interval, compare
from .facets import NAMES, Facets, facets
from .fill import fill
from .page import render, write_page
from .panels import bars, panel_figure
from .patterns import measure, schedule_summary
from .sensitivity import against_setting, setting_table
from .table import final_table, metric_names

__all__ = [
    "NAMES",
    "Comparison",
    "Facets",
    "Interval",
    "Run",
    "against_delay",
    "against_setting",
    "bars",
    "compare",
    "delays",
    "facets",
    "fill",
    "final_table",
    "measure",
    "metric_names",
    "panel_figure",
    "rate_advice",
    "read_runs",
    "render",
    "schedule_summary",
    "setting_table",
    "write_page",
]
