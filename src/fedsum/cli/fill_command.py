"""fedsum fill PAGE..."""

from pathlib import Path
from typing import Annotated

import typer

from .console import err, out
from .running import FAILED


def fill(
    pages: Annotated[list[Path], typer.Argument(metavar="PAGE...", help="Markdown files with fedsum blocks.")],
    check: Annotated[bool, typer.Option("--check", help="Change nothing; fail if a table is out of date.")] = False,
) -> None:
    """Write the tables and draw the figures of Markdown pages from their runs."""
    from ..report import fill as fill_page

    outdated = {page: fill_page(page, check=check) for page in pages}
    for page, lines in outdated.items():
        numbers = ", ".join(map(str, lines))
        if not lines:
            out.print(f"{page}: up to date", highlight=False, soft_wrap=True)
        elif check:
            err.print(f"{page}: the table at line {numbers} is out of date", highlight=False, soft_wrap=True)
        else:
            out.print(f"{page}: filled, line {numbers}", highlight=False, soft_wrap=True)
    if check and any(outdated.values()):
        err.print("update it with: fedsum fill PAGE...", highlight=False)
        raise typer.Exit(FAILED)
