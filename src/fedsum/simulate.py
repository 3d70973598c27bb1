"""`fedsum.simulate`: the training core, with a run folder if one is given."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from .algorithms import Algorithm
from .participation import Devices, Schedule
from .runs import train_in_folder
from .spec import RunSpec
from .tasks import BaseTask
from .training import (
    OPTIONS,
    Callback,
    History,
    Observer,
    Options,
    ProgressBar,
    Rate,
    RoundDone,
    StopWhen,
    refuse_mismatch,
    shows_progress,
    train,
)


def simulate(
    task: BaseTask,
    algorithm: Algorithm,
    schedule: Schedule,
    *,
    rounds: int,
    local_steps: int | None = None,
    local_epochs: int | None = None,
    eta_l: Rate,
    eta_g: float = 1.0,
    batch_size: int = 128,
    clip_norm: float | None = None,
    weight_decay: float = 0.0,
    seed: int = 0,
    eval_every: int = 10,
    eval_last: int = 0,
    eval_model: Literal["server", "clients"] | None = None,
    stop: StopWhen | None = None,
    per_client: bool = False,
    devices: Devices | None = None,
    deadline: float | None = None,
    enough: float | None = None,
    dtype: torch.dtype = torch.float32,
    precision: Literal["fp32", "tf32", "bf16"] = "fp32",
    deterministic: bool = False,
    engine: str = "auto",
    device: str | torch.device = "auto",
    checkpoint_rounds: int | None = None,
    checkpoint_seconds: float = 60.0,
    folder: str | Path | None = None,
    extend: bool = False,
    on_round: Callable[[RoundDone], None] | None = None,
    observers: Sequence[Observer] = (),
    progress: bool | None = None,
) -> History:
    """Trains `task` with `algorithm` under the participation `schedule`.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> history = simulate(task, fedsum.FedSUM(), fedsum.Cyclic(2, 1), rounds=500, local_steps=2, eta_l=0.02)
    >>> history.x
    tensor([3.0000])
    >>> history.delays.max  # each client is away for one round
    1

    Args:
      task: what is trained, from `fedsum.tasks` or your own.
      algorithm: `FedSUM()`, another, or your own.
      schedule: the active clients of each round; for as many clients as the task has.
      folder: the run folder, for config, metrics, log, checkpoints and final model. If it already holds a run with
        the same settings, that run is resumed.
      extend: the run in the folder may have fewer rounds; it goes on to the new number, with the same result as a run
        that had all rounds from the start.
      on_round: called after every round.
      observers: notified of every event of the run, in order; see `fedsum.Observer`.
      progress: draw a progress bar; default: in notebooks, and if standard output is a terminal.
    """
    arguments: dict[str, Any] = locals()
    options = Options(**{option.name: arguments[option.name] for option in OPTIONS})
    all_observers = [*observers, *([Callback(on_round)] if on_round else [])]
    if shows_progress() if progress is None else progress:
        all_observers.append(ProgressBar())
    if folder is None:
        history = train(task, algorithm, schedule, options, all_observers)
    else:
        refuse_mismatch(task, algorithm, schedule, options)  # before the folder is claimed for this run
        spec = RunSpec.of(task, algorithm, schedule, options)
        history = train_in_folder(task, algorithm, schedule, options, folder, spec, all_observers, extend=extend)
    if history.diverged is not None:
        warnings.warn(history.reason, stacklevel=2)
    return history


# Each option is documented where it is defined.
simulate.__doc__ = (simulate.__doc__ or "").rstrip() + "".join(
    f"\n      {option.name}: {option.metadata['doc']}." for option in OPTIONS
)
