"""Reports on finished and running runs: tables, figures and an HTML page. Imports pandas and matplotlib."""

from ..runs import Run, read_runs
from .against_delay import against_delay, delays
from .facets import NAMES, Facets, facets
from .page import render, write_page
from .panels import bars, grid
from .patterns import measure, summary
from .sensitivity import against_setting, settings
from .table import final, metrics

__all__ = [
    "NAMES",
    "Facets",
    "Run",
    "against_delay",
    "against_setting",
    "bars",
    "delays",
    "facets",
    "final",
    "grid",
    "measure",
    "metrics",
    "read_runs",
    "render",
    "settings",
    "summary",
    "write_page",
]
