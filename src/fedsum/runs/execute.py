"""Execution of one run in this process, for `fedsum run` and for the workers of a sweep."""

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
from ..tasks import BaseTask, directions_of
from ..training import History, Observer, Options, joined_ranks, refuse_mismatch, train
from .follower import Follower
from .layout import CHECKPOINT
from .recorder import recorded
from .run_reader import Run
from .run_writer import InUse, RunFolder
from .stop_requests import stop_requests
from .tensorboard import TensorBoard

_TASKS: dict[str, BaseTask] = {}
"""the latest task, by its settings: many runs of a sweep share its data and its compiled graphs"""


def train_in_folder(
    task: BaseTask,
    algorithm: Algorithm,
    schedule: Schedule,
    options: Options,
    folder: str | Path,
    spec: RunSpec,
    observers: Sequence[Observer] = (),
    *,
    extend: bool = False,
) -> History:
    """`train`, recorded in a folder. Resumes from the folder's checkpoint if there is one.

    With `extend`, the run in the folder may have fewer rounds, and goes on to the new number. Of
    several ranks, rank 0 writes the folder.
    """
    if not joined_ranks().first:
        with stop_requests():  # rank 0 decides when to stop
            return train(task, algorithm, schedule, options, [*observers, Follower()])
    with recorded(folder, spec, options.torch_device(), directions_of(task), extend=extend) as recorder:
        return train(task, algorithm, schedule, options, [*observers, recorder])


def execute(
    spec: RunSpec,
    folder: Path,
    *,
    engine: str | None = None,
    observers: Sequence[Observer] = (),
    extend: bool = False,
) -> History:
    """Starts the run of a spec in a folder, resumes it, or extends it."""
    task = _task(spec)
    spec = spec.with_clients(task.n)
    options = replace(spec.options, engine=engine or spec.options.engine)
    schedule = spec.schedule.make(task.n)
    refuse_mismatch(task, spec.algorithm, schedule, options)  # before the folder is claimed for this run
    return train_in_folder(task, spec.algorithm, schedule, options, folder, spec, observers, extend=extend)


def execute_quietly(
    table: Table,
    folder: Path,
    *,
    shared: bool,
    keep_checkpoint: bool,
    tensorboard: bool,
    extend: bool = False,
    working_folder: Path | None = None,
) -> Run:
    """`execute` for a worker process. Never raises: the returned run has the state and the reason of a failure.

    A run that another process executes is `running`, and the reason names that process.

    Args:
      table: the run's settings, as in a file.
      folder: the run's folder.
      shared: whether other runs use this machine's cores. The run then uses one process; all CPU engines give
        bit-identical results.
      keep_checkpoint: keep the checkpoint of a finished run.
      tensorboard: also write TensorBoard files.
      extend: the run in the folder may have fewer rounds.
      working_folder: the caller's, for relative paths; the workers of a cluster start in another folder.
    """
    torch.set_num_threads(1)
    if working_folder:
        os.chdir(working_folder)
    try:
        spec = RunSpec.parse(table)
        one_process = shared and spec.options.engine == "auto" and spec.options.torch_device().type == "cpu"
        observers = [TensorBoard(folder)] if tensorboard else []
        execute(spec, folder, engine="loop" if one_process else None, observers=observers, extend=extend)
    except KeyboardInterrupt:
        pass
    except InUse as error:
        return replace(Run.read_or_new(folder), state="running", reason=f"in another process ({error.holder})")
    except Exception as error:
        reason = " ".join(f"{error}".split()) or type(error).__name__
        reason = reason if isinstance(error, InputError | OSError) else f"{type(error).__name__}: {reason}"
        _record_failure(folder, reason)
        return replace(Run.read_or_new(folder), state="failed", reason=reason)
    run = Run.read_or_new(folder)
    if run.state == "finished" and not keep_checkpoint:
        (folder / CHECKPOINT).unlink(missing_ok=True)
    return run


def _task(spec: RunSpec) -> BaseTask:
    key = json.dumps(spec.task.dump(), sort_keys=True, default=str)
    if key not in _TASKS:
        _TASKS.clear()
        _TASKS[key] = spec.task.make()
    return _TASKS[key]


def _record_failure(folder: Path, reason: str) -> None:
    """Writes the status of a run that failed before it claimed its folder."""
    try:
        with closing(RunFolder(folder)) as run_folder:
            if Run.read_or_new(folder).state not in ("failed", "finished"):
                run_folder.set_status("failed", 0, reason)
    except (InputError, OSError):
        pass  # the sweep still reports the failure
