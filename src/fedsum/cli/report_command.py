"""fedsum report FOLDER"""

from pathlib import Path
from typing import Annotated

import typer

from .arguments import PackedOrFolder
from .console import note_replaced, print_path


def report(
    folder: PackedOrFolder,
    page: Annotated[Path, typer.Option("--out", help="HTML file to write.")] = Path("report.html"),
    by: Annotated[str | None, typer.Option(help="Metric to show first; default: as fedsum compare.")] = None,
) -> None:
    """Write an interactive HTML page of all runs in a folder or a packed file. The page needs no network."""
    from ..report import write_page

    existed = page.exists()
    path = write_page(folder, page, by)
    if existed:
        note_replaced(page)
    print_path("report", path)
