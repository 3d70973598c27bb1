"""fedsum run FILE"""

from pathlib import Path

from ..spec import read_settings, with_settings
from .arguments import Board, ExecutionOptions, File, Folder, Gpus, Jobs, Keep, Ray, Set
from .console import Json
from .running import run_table


def run(
    file: File,
    settings: Set = None,
    folder: Folder = None,
    jobs: Jobs = 1,
    ray: Ray = None,
    gpus: Gpus = 0.0,
    keep: Keep = False,
    tensorboard: Board = False,
    as_json: Json = False,
) -> None:
    """Execute the run or the sweep of a file. Finished and diverged runs are skipped.

    `fedsum settings` lists every setting.
    """
    table = with_settings(read_settings(file), settings or [])
    run_table(table, folder or Path("runs") / file.stem, ExecutionOptions(jobs, ray, gpus, keep, tensorboard, as_json))
