"""fedsum resume FOLDER"""

import sys
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from ..base.checks import InputError
from ..runs import CONFIG, SWEEP_FILE, read_toml
from ..spec import code_confirmed_by, with_settings
from .arguments import Board, ExecutionOptions, Gpus, Jobs, Keep, Ray, RunsFolder, Set
from .console import Json
from .running import run_table


def resume(
    folder: RunsFolder,
    settings: Set = None,
    jobs: Jobs = 1,
    ray: Ray = None,
    gpus: Gpus = 0.0,
    keep: Keep = False,
    tensorboard: Board = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="Import the code that the settings name, without asking.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Resume a run or a sweep that stopped, was interrupted or failed.

    With --set rounds=N, a finished run continues to N rounds. Its result is the same as that of a run with N rounds
    from the start. The runs of a sweep can be extended if their checkpoints were kept with --keep.

    If the settings name code (file.py:name), the command asks before it imports the file.
    """
    for name in (CONFIG, SWEEP_FILE):
        if (folder / name).exists():
            execution = ExecutionOptions(jobs, ray, gpus, keep, tensorboard, as_json, extend=True)
            with code_confirmed_by(lambda code: trust or _trusted(code, folder)):
                run_table(with_settings(read_toml(folder / name), settings or []), folder, execution)
            return
    accepted = f"a folder with a {CONFIG} or a {SWEEP_FILE}; a packed file has no checkpoints to resume from"
    raise InputError("folder", str(folder), accepted)


@cache
def _trusted(code: str, folder: Path) -> bool:
    """Asks once per name. Without a terminal, the answer is no."""
    question = f"the settings in {folder} name code: {code}. Import it, which runs it?"
    return sys.stdin.isatty() and typer.confirm(question, err=True)
