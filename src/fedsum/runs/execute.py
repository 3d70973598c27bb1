"""One run from its settings, in this process: what `fedsum run` and every worker of a sweep call."""

import json
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import torch

from ..algorithms import Algorithm
from ..base.checks import InputError
from ..base.toml_values import Table
from ..participation import Schedule
from ..spec import RunSpec
from ..tasks import BaseTask
from ..training import History, Observer, Options, refuse_mismatch, train
from .layout import CHECKPOINT
from .recorder import recorded
from .run_reader import Run
from .run_writer import RunFolder
from .tensorboard import TensorBoard

_TASKS: dict[str, BaseTask] = {}
"""the last task made: many runs of a sweep share it, its data and its compiled graphs"""


def train_in_folder(
    task: BaseTask,
    algorithm: Algorithm,
    schedule: Schedule,
    options: Options,
    folder: str | Path,
    spec: RunSpec,
    observers: Sequence[Observer] = (),
) -> History:
    """`train`, with the run kept in its folder: begun there, or resumed from its checkpoint."""
    refuse_mismatch(task, schedule)  # before the folder is claimed for it
    with recorded(folder, spec, options.torch_device()) as recorder:
        return train(task, algorithm, schedule, options, [*observers, recorder])


def execute(spec: RunSpec, folder: Path, *, engine: str | None = None, observers: Sequence[Observer] = ()) -> History:
    """Begins the run of this spec in its folder, or goes on with it."""
    task = _task(spec)
    spec = spec.with_clients(task.n)
    options = replace(spec.options, engine=engine or spec.options.engine)
    schedule = spec.schedule.make(task.n)
    return train_in_folder(task, spec.algorithm, schedule, options, folder, spec, observers)


def execute_quietly(
    table: Table, folder: Path, *, shared: bool, keep_checkpoint: bool, tensorboard: bool, here: Path | None = None
) -> Run:
    """`execute` for a worker process: never raises, and returns how the run stands.

    Args:
      table: the run's settings, as a file says them.
      folder: the run's.
      shared: whether other runs use this machine's cores; a run then uses one process. All engines of a CPU give the
        same bits.
      keep_checkpoint: keep the checkpoint of a finished run.
      tensorboard: write TensorBoard's files too.
      here: the caller's working folder, which relative paths start from; a cluster's workers begin elsewhere.
    """
    torch.set_num_threads(1)
    if here:
        os.chdir(here)
    try:
        spec = RunSpec.parse(table)
        alone = shared and spec.options.engine == "auto" and spec.options.torch_device().type == "cpu"
        observers = [TensorBoard(folder)] if tensorboard else []
        execute(spec, folder, engine="loop" if alone else None, observers=observers)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        reason = " ".join(f"{error}".split()) or type(error).__name__
        reason = reason if isinstance(error, InputError | OSError) else f"{type(error).__name__}: {reason}"
        _note_failure(folder, reason)
        return replace(Run.read(folder), state="failed", reason=reason)
    run = Run.read(folder)
    if run.state == "finished" and not keep_checkpoint:
        (folder / CHECKPOINT).unlink(missing_ok=True)
    return run


def _task(spec: RunSpec) -> BaseTask:
    key = json.dumps(spec.task.dump(), sort_keys=True, default=str)
    if key not in _TASKS:
        _TASKS.clear()
        _TASKS[key] = spec.task.make()
    return _TASKS[key]


def _note_failure(folder: Path, reason: str) -> None:
    """For a run that failed before its folder could say so."""
    try:
        with closing(RunFolder(folder)) as held:
            if Run.read(folder).state not in ("failed", "finished"):
                held.set_status("failed", 0, reason)
    except (InputError, OSError):
        pass  # the sweep reports it all the same
