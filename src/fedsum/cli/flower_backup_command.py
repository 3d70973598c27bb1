"""fedsum flower backup FOLDER TARGET"""

from pathlib import Path
from typing import Annotated

import typer

from .arguments import DeploymentFolder
from .console import out


def flower_backup(
    folder: DeploymentFolder,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A folder that does not exist yet.")],
) -> None:
    """Copy a deployment's run folder, also while the server runs. The copy is consistent and verified."""
    from ..flower import write_backup

    rounds = write_backup(folder, target)
    out.print(f"{target}: backup after {rounds} rounds", soft_wrap=True, highlight=False)
