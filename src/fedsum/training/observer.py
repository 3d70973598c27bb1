"""Observers of a run: run folders, progress bars, TensorBoard, your own."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from ..algorithms import Algorithm
from ..participation import Ids, Schedule
from ..tasks import BaseTask
from .options import Options
from .ranks import Ranks
from .state import RunState

if TYPE_CHECKING:
    from .history import History
    from .round_clock import Closed


@dataclass(frozen=True)
class RoundDone:
    """The event that observers and `on_round` receive after every round.

    >>> import fedsum
    >>> task, rounds = fedsum.tasks.Quadratic.random(4, 2, seed=0), []
    >>> options = {"rounds": 3, "local_steps": 1, "eta_l": 0.1, "on_round": rounds.append}
    >>> _ = fedsum.simulate(task, fedsum.FedSUM(), fedsum.Cyclic(4, 2), **options)
    >>> [(done.round, done.active.tolist(), done.tau) for done in rounds]
    [(1, [0, 1], 1), (2, [2, 3], 1), (3, [0, 1], 1)]
    """

    round: int
    """rounds done"""
    active: Ids
    """ids of the clients that took part"""
    tau: int
    """the longest any client has been away, in rounds"""
    metrics: dict[str, float] | None
    """this round's evaluation, if there was one"""
    diverged: bool = False
    """whether the evaluation was not finite; the run ends here"""
    closed: "Closed | None" = None
    """with `devices`: the seconds that the round took, and its late clients"""


@dataclass(frozen=True)
class Training:
    """A run in progress, as observers see it."""

    task: BaseTask
    algorithm: Algorithm
    schedule: Schedule
    options: Options
    device: torch.device
    state: RunState
    """changes from round to round"""
    ranks: Ranks = field(default_factory=Ranks)
    """the processes of the run; observers are notified on each of them"""


class Observer:
    """Receives the events of a run: override the methods you need. By default they do nothing.

    >>> class Print(Observer):
    ...     def evaluated(self, run, row):
    ...         print(row["round"], round(row["train_loss"], 3))
    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])
    >>> options = {"rounds": 20, "local_steps": 2, "eta_l": 0.1}
    >>> _ = fedsum.simulate(task, fedsum.FedSUM(), fedsum.Uniform(2, 1), observers=[Print()], **options)
    0 12.0
    10 3.0
    20 3.0
    """

    def restore(self, run: Training) -> None:
        """Called first. May load a checkpoint into `run.state`."""

    def started(self, run: Training) -> None:
        """Before the first evaluation and round; `run.state.done` rounds come from the checkpoint."""

    def evaluated(self, run: Training, row: dict[str, float]) -> None:
        """After each evaluation."""

    def round_done(self, run: Training, done: RoundDone) -> None:
        """After each round, and after its evaluation if there was one."""

    def finished(self, run: Training, history: "History") -> None:
        """The last round is done."""

    def diverged(self, run: Training, reason: str) -> None:
        """The loss or the model is no longer finite; the run ends here."""

    def closed(self) -> None:
        """The run has ended, also if an error or Ctrl-C ended it."""


class Callback(Observer):
    """A function as an observer: simulate()'s `on_round`."""

    def __init__(self, on_round: Callable[[RoundDone], None]) -> None:
        self._on_round = on_round

    def round_done(self, run: Training, done: RoundDone) -> None:
        self._on_round(done)
