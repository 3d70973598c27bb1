"""fedsum flower restore BACKUP FOLDER"""

from pathlib import Path
from typing import Annotated

import typer

from .console import out


def flower_restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="A folder that `fedsum flower backup` has written.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The run folder; if it exists, it is renamed.")],
) -> None:
    """Copy a backup to the run folder.

    `flwr run` then resumes the run with a new epoch, so that clients and server agree.
    """
    from ..flower import restore_backup

    rounds, moved = restore_backup(backup, folder)
    out.print(
        f"{folder}: restored to the state after {rounds} rounds; `flwr run` resumes the run with a new epoch",
        soft_wrap=True,
        highlight=False,
    )
    if moved:
        out.print(f"the old folder is now {moved}", soft_wrap=True, highlight=False)
