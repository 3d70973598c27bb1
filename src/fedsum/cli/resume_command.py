"""fedsum resume FOLDER"""

from ..base.checks import InputError
from ..runs import CONFIG, SWEEP_FILE, read_toml
from .arguments import Board, ExecutionOptions, Gpus, Jobs, Keep, Ray, RunsFolder
from .console import Json
from .running import run_table


def resume(
    folder: RunsFolder,
    jobs: Jobs = 1,
    ray: Ray = None,
    gpus: Gpus = 0.0,
    keep: Keep = False,
    tensorboard: Board = False,
    as_json: Json = False,
) -> None:
    """Resume a run or a sweep that stopped, was interrupted or failed."""
    for name in (CONFIG, SWEEP_FILE):
        if (folder / name).exists():
            execution = ExecutionOptions(jobs, ray, gpus, keep, tensorboard, as_json)
            run_table(read_toml(folder / name), folder, execution)
            return
    accepted = f"a folder with a {CONFIG} or a {SWEEP_FILE}; a packed file has no checkpoints to resume from"
    raise InputError("folder", str(folder), accepted)
