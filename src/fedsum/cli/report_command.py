"""fedsum report FOLDER"""

from pathlib import Path
from typing import Annotated

import typer

from .arguments import PackedOrFolder
from .console import print_path


def report(
    folder: PackedOrFolder,
    page: Annotated[Path, typer.Option("--out", help="Where the page goes.")] = Path("report.html"),
) -> None:
    """One HTML page on all runs in a folder or a packed file, to explore in a browser without a network."""
    from ..report import write_page

    print_path("report", write_page(folder, page))
