"""One run from its table, in this process: what every worker of a sweep calls."""

import json
import os
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..base.checks import InputError
from ..simulate import RoundDone, simulate
from ..tasks import BaseTask
from ..training.history import History
from . import checkpoint
from .config import Config
from .folder import RunFolder
from .recipes import Table
from .standing import Standing, standing

_TASKS: dict[str, BaseTask] = {}
"""the last task made: many runs of a sweep share theirs, and with it its data and its compiled graphs"""


def execute(
    table: Table,
    folder: Path,
    *,
    on_round: Callable[[RoundDone], None] | None = None,
    engine: str | None = None,
    tensorboard: bool = False,
) -> History:
    """Begins the run of this table in its folder, or goes on with it."""
    config = Config.of(table)
    key = json.dumps(table["task"], sort_keys=True, default=str)
    if key not in _TASKS:
        _TASKS.clear()
        _TASKS[key] = config.make_task()
    task = _TASKS[key]
    options = replace(config.options, engine=engine or config.options.engine)
    settings = {name: getattr(options, name) for name in options.__dataclass_fields__}
    if tensorboard:
        from .tensorboard import TensorBoard

        with closing(TensorBoard(folder, on_round)) as watching:
            return simulate(
                task, config.algorithm, config.make_schedule(task.n), folder=folder, on_round=watching, **settings
            )
    return simulate(task, config.algorithm, config.make_schedule(task.n), folder=folder, on_round=on_round, **settings)


def execute_quietly(
    table: Table, folder: Path, shared: bool, keep: bool, tensorboard: bool, here: Path | None = None
) -> Standing:
    """`execute` for a worker: never raises, and says how the run stands.

    Args:
      here: the caller's folder, which relative paths are meant from; a cluster's workers begin elsewhere.
      shared: whether other runs use this machine's cores; a run then keeps to one process. All engines of a CPU
        give the same bits.
      keep: keep the checkpoint of a finished run.
    """
    torch.set_num_threads(1)
    if here:
        os.chdir(here)
    engine = "loop" if shared and table.get("engine", "auto") == "auto" and not _on_cuda(table) else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a divergence is in the folder, for whoever reads the outcome
            execute(table, folder, engine=engine, tensorboard=tensorboard)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        reason = " ".join(f"{error}".split()) or type(error).__name__
        reason = reason if isinstance(error, InputError | OSError) else f"{type(error).__name__}: {reason}"
        _note_failure(folder, reason)
        return replace(standing(folder), state="failed", reason=reason)
    found = standing(folder)
    if found.state == "finished" and not keep:
        (folder / checkpoint.NAME).unlink(missing_ok=True)
    return found


def _on_cuda(table: dict[str, Any]) -> bool:
    device = str(table.get("device", "auto"))
    return torch.cuda.is_available() if device == "auto" else device.startswith("cuda")


def _note_failure(folder: Path, reason: str) -> None:
    """For a run that failed before it had a folder to say so."""
    try:
        with closing(RunFolder(folder)) as held:
            if standing(folder).state not in ("failed", "finished"):
                held.set_status("failed", 0, reason)
    except (InputError, OSError):
        pass  # the sweep says it all the same
