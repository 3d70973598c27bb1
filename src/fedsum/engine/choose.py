"""The engines by name, and the engine that "auto" chooses."""

import time
from contextlib import suppress
from typing import Protocol

import torch
from torch import Tensor

from ..algorithms import LocalPlan
from ..base.checks import InputError
from ..participation import Ids
from ..tasks import BaseTask
from .loop import LoopEngine
from .processes import WorkerEngine, cores
from .stacked import BatchedEngine
from .step_counts import StepCounts

ENGINES = ("auto", "loop", "batched", "workers")
_WORTH_STARTING = 20.0
"""seconds of remaining work above which worker processes are worth their start"""


class Engine(Protocol):
    """Computes G of each active client, [S, d], from the cohort's plan, the clients' ids and the round."""

    def __call__(self, plan: LocalPlan, clients: Ids, t: int) -> Tensor: ...

    def close(self) -> None: ...


def choose_engine(
    name: str, task: BaseTask, device: torch.device, *, seed: int, K: StepCounts, batch_size: int, rounds: int
) -> Engine:
    """The engine of that name; "auto" is "batched" on CUDA, and on a CPU "loop", then "workers" for long runs."""
    cuda = device.type == "cuda"
    if name == "workers" and cuda:
        raise InputError("engine", name, "workers are CPU processes; on CUDA use 'batched'")
    if name == "batched" or (name == "auto" and cuda):
        if cuda:
            from .graphs import GraphEngine

            return GraphEngine(task, seed, K, batch_size)
        return BatchedEngine(task, seed, K, batch_size)
    if name == "workers":
        return WorkerEngine(task, seed, K, batch_size)
    if name == "auto" and cores() > 1:
        return _LoopThenWorkers(task, seed, K, batch_size, rounds)
    return LoopEngine(task, seed, K, batch_size)


class _LoopThenWorkers:
    """The loop, then worker processes if much work remains. Both give the same bits."""

    def __init__(self, task: BaseTask, seed: int, K: StepCounts, batch_size: int, rounds: int) -> None:
        self._job = (task, seed, K, batch_size)
        self._rounds = rounds
        self._engine: Engine = LoopEngine(*self._job)
        self._try_workers = True

    def __call__(self, plan: LocalPlan, clients: Ids, t: int) -> Tensor:
        if not isinstance(self._engine, LoopEngine) or len(clients) < 2:
            return self._engine(plan, clients, t)
        started = time.perf_counter()
        G = self._engine(plan, clients, t)
        remaining = (self._rounds - t - 1) * (time.perf_counter() - started)
        if remaining > _WORTH_STARTING and self._try_workers:
            self._try_workers = False
            # If the task cannot be pickled or memory is short, the run continues without workers.
            with suppress(Exception):
                self._engine = WorkerEngine(*self._job)
        return G

    def close(self) -> None:
        self._engine.close()
