"""The engines by name, and the engine that "auto" chooses."""

import time
import warnings
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..algorithms import LocalPlan
from ..base.checks import InputError
from ..participation import Ids
from ..tasks import BaseTask
from . import kernels
from .dropout import keyed_noise
from .loop import LoopEngine
from .own_gradients import gradients_of
from .processes import WorkerEngine, cores
from .stacked import BatchedEngine, stacked_batches
from .step_counts import StepCounts
from .streams import StreamsEngine

ENGINES = ("auto", "loop", "batched", "streams", "workers")
STACKED_UP_TO = 2_000_000
"""parameters of the largest network whose clients "auto" stacks on CUDA; see docs/engines.md"""
_WORTH_STARTING = 20.0
"""seconds of remaining work above which worker processes are worth their start"""


class Engine(Protocol):
    """Computes G of each active client, [S, d], from the cohort's plan, the clients' ids and the round."""

    @property
    def name(self) -> str:
        """The engine's name; a resumed run continues with it."""
        ...

    def __call__(self, plan: LocalPlan, clients: Ids, t: int) -> Tensor: ...

    def close(self) -> None: ...


def choose_engine(
    name: str,
    task: BaseTask,
    device: torch.device,
    *,
    seed: int,
    K: StepCounts,
    batch_size: int,
    rounds: int,
    chosen: str | None = None,
) -> Engine:
    """The engine of that name; "auto" is `chosen` if it is given, as by a resumed run, or else by the fixed rule.

    The rule is on CUDA that of `for_cuda`, and on a CPU "loop", then "workers" for long runs.
    """
    job = task, seed, K, batch_size
    cuda = device.type == "cuda"
    if name == "workers" and cuda:
        raise InputError("engine", name, "workers are CPU processes; on CUDA use 'batched' or 'streams'")
    if name == "auto" and cuda:
        first = chosen if chosen in ("batched", "streams") else for_cuda(task, seed, batch_size)
        return _FirstThatWorks(*job, first)
    if name == "auto" and cores() > 1:
        return _LoopThenWorkers(*job, rounds)
    return _named(name, device, *job)


def for_cuda(task: BaseTask, seed: int, batch_size: int) -> str:
    """The engine that "auto" uses on CUDA.

    "batched" for networks that fedsum's kernels support, and for other networks of up to `STACKED_UP_TO` parameters
    whose clients can be stacked; "streams" for all others.
    """
    if kernels.steps(task) is not None:
        return "batched"
    x = task.init(seed)
    return "batched" if len(x) <= STACKED_UP_TO and is_stackable(task, x, batch_size) else "streams"


def is_stackable(task: BaseTask, x: Tensor, batch_size: int) -> bool:
    """Whether torch can compute the gradients of two stacked clients, without a warning about slow operations."""
    clients = np.zeros(2, dtype=np.int64)
    try:
        with keyed_noise(task, 0, 0, 0, x.device), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", ".*performance drop")  # vmap computes an operation client by client
            batches = stacked_batches(task, 0, 0, clients, 1, batch_size).to(x.device)
            gradients_of(task)(x.expand(2, -1), torch.from_numpy(clients).to(x.device), batches[0])
    except Exception:  # torch raises errors of many types, and the user's code may do so too
        return False
    return True


def _named(name: str, device: torch.device, task: BaseTask, seed: int, K: StepCounts, batch_size: int) -> Engine:
    if name == "batched" and device.type == "cuda":
        from .graphs import GraphEngine

        return GraphEngine(task, seed, K, batch_size)
    engines: dict[str, type[Any]] = {"batched": BatchedEngine, "streams": StreamsEngine, "workers": WorkerEngine}
    engine: Engine = engines.get(name, LoopEngine)(task, seed, K, batch_size)
    return engine


class _FirstThatWorks:
    """On CUDA: an engine, and if it fails on this network a slower one that supports more networks."""

    _ORDER = ("batched", "streams", "loop")

    def __init__(self, task: BaseTask, seed: int, K: StepCounts, batch_size: int, first: str) -> None:
        self._job, self.name = (task, seed, K, batch_size), first
        self._engine: Engine | None = None

    def __call__(self, plan: LocalPlan, clients: Ids, t: int) -> Tensor:
        while self.name != self._ORDER[-1]:
            try:
                self._engine = self._engine or _named(self.name, plan.start.device, *self._job)
                return self._engine(plan, clients, t)
            except Exception as error:  # of the compiler, of CUDA or of the network; the loop raises the network's own
                following = self._ORDER[self._ORDER.index(self.name) + 1]
                reason = " ".join(str(error).split()) or type(error).__name__
                line = f"engine 'auto': '{self.name}' cannot train this network, so '{following}' does ({reason[:200]})"
                warnings.warn(line, stacklevel=2)
                self._engine, self.name = None, following
        self._engine = self._engine or _named(self.name, plan.start.device, *self._job)
        return self._engine(plan, clients, t)

    def close(self) -> None:
        """The engines on CUDA have nothing to release."""


class _LoopThenWorkers:
    """The loop, then worker processes if much work remains. Both give the same bits."""

    name = "auto"

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
