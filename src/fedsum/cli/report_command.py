"""fedsum report FOLDER"""

from pathlib import Path
from typing import Annotated

import typer

from .console import print_path


def report(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A run, or a folder with runs at any depth.")],
    page: Annotated[Path, typer.Option("--out", help="Where the page goes.")] = Path("report.html"),
) -> None:
    """One HTML page on all runs in a folder, to explore in a browser without a network."""
    from ..report import write_page

    print_path("report", write_page(folder, page))
