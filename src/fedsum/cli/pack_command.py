"""fedsum pack FOLDER"""

from pathlib import Path
from typing import Annotated

import typer

from ..runs import open_runs
from ..runs import pack as pack_runs
from .console import Json, out, print_json, print_path


def pack(
    inputs: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Folders with runs, or packed files.")],
    file: Annotated[
        Path | None, typer.Option("--out", help="File to write; default FOLDER.parquet; required for several inputs.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Pack all runs of a sweep into one Parquet file, which show, report, grid and reproduce read like a folder.

    Several inputs, such as the folders of several machines, are merged into one file.
    """
    path = pack_runs(inputs, file)
    runs, size = len(open_runs(path).names()), path.stat().st_size
    if as_json:
        print_json({"file": str(path), "bytes": size, "runs": runs})
        return
    print_path("packed", path)
    out.print(f"{runs} {'run' if runs == 1 else 'runs'}, {size / 1e6:.2f} MB", highlight=False)
    out.print("checkpoints, models and logs are not packed", highlight=False)
