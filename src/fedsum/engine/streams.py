"""Clients side by side: on CUDA one client's step is compiled, and a graph has one branch per client.

For large networks. Stacked clients (`graphs.py`) need kernels with a client dimension, which are slow for convolutions,
and many networks cannot be stacked. Here every kernel is that of a single client. On a CPU, clients take their steps
one after the other, without compiler and graph.
"""

import warnings
from collections.abc import Callable, Hashable
from itertools import pairwise
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from ..algorithms import LocalPlan
from ..participation import Ids
from ..tasks import BaseTask
from .cache import cache_of
from .client_step import ClientStep
from .cohort_memory import CohortMemory, CohortVectors
from .dropout import keyed_noise
from .local_step import is_pulled
from .loop import LoopEngine
from .regularised import Regularised
from .stacked import stacked_batches
from .step_counts import StepCounts, cohort_counts, most_steps
from .stream_graphs import BranchStreams
from .transfer import on_device

T = TypeVar("T")
BRANCHES = 16
"""clients per graph at most: more branches do not fill a GPU any better"""
_GRAPH_STEPS = 32
"""steps per graph at most; a larger graph takes long to capture"""
_UNEQUAL_STEPS = 8
"""steps per graph if clients have their own numbers of steps: up to 7 surplus steps are computed and discarded"""


class CaptureFailed(Exception):
    """The steps of this task cannot be captured in a CUDA graph."""


class StreamsEngine:
    """Any device. Graphs stay in the task's cache, so that later runs of the task start at once."""

    name = "streams"

    def __init__(self, task: BaseTask, seed: int, K: StepCounts, batch_size: int) -> None:
        self.task, self.seed, self.K, self.batch_size = task, seed, K, batch_size
        self._steps: _TaskSteps | None = None
        self._loop: LoopEngine | None = None

    def __call__(self, plan: LocalPlan, clients: Ids, t: int) -> Tensor:
        """G of each client, [S, d]; the plan's vectors are shared, [d], or stacked, [S, d]."""
        if self._loop is not None or not len(clients):
            return (self._loop or LoopEngine(self.task, self.seed, self.K, self.batch_size))(plan, clients, t)
        self._steps = self._steps or self._cached_steps(plan.start)
        try:
            # Compilation and capture draw random numbers too, and must not change the user's generators.
            with keyed_noise(self.task, self.seed, t, 0, plan.start.device), torch.no_grad():
                return self._all_chunks(self._steps, plan, clients, t)
        except CaptureFailed as error:
            say_fall("the steps cannot be captured in a CUDA graph", "engine 'loop' trains the clients", error)
            self._loop = LoopEngine(self.task, self.seed, self.K, self.batch_size)
            return self._loop(plan, clients, t)

    def _cached_steps(self, start: Tensor) -> "_TaskSteps":
        # The options that are part of a graph. A regularised task shares the cache of its task.
        task, extra = (self.task.task, self.task.key) if isinstance(self.task, Regularised) else (self.task, None)
        options = ("streams", torch.get_float32_matmul_precision(), torch.backends.cudnn.deterministic, extra)
        cached = cache_of(task).graphs
        if options not in cached:
            cached[options] = _TaskSteps(self.task, start)
        steps: _TaskSteps = cached[options]
        return steps

    def _all_chunks(self, steps: "_TaskSteps", plan: LocalPlan, clients: Ids, t: int) -> Tensor:
        G = plan.start.new_empty(len(clients), plan.start.shape[-1])
        limit = steps.limit(lambda: self._work(steps, plan, clients, slice(0, 1), t))
        for place, chunk in enumerate(even_chunks(len(clients), limit)):
            work = self._work(steps, plan, clients, chunk, t)
            replay = steps.replay(work)
            work.load()
            with keyed_noise(self.task, self.seed, t, place, G.device):
                for batches, alive in work.parts:
                    work.memory.load_steps(batches, alive)
                    replay()
            steps.step.layout.unload(work.memory.total, G[chunk])
            G[chunk] /= on_device(work.counts, G.device)[:, None]
        return G

    def _work(self, steps: "_TaskSteps", plan: LocalPlan, clients: Ids, chunk: slice, t: int) -> "_Work":
        ids = clients[chunk]
        counts, most = cohort_counts(self.K, ids), most_steps(self.K, ids)
        per_graph = graph_steps(most, unequal=counts is not None)
        padded = most + -most % per_graph
        counts = torch.full((len(ids),), most) if counts is None else counts
        batches = stacked_batches(self.task, self.seed, t, ids, self.K, self.batch_size, padded)
        alive = torch.arange(padded)[:, None] < counts
        parts = list(zip(torch.split(batches, per_graph), torch.split(alive, per_graph), strict=True))
        memory = steps.memory(len(ids), parts[0][0], plan)
        return _Work(memory, lambda: memory.load(plan, chunk, ids), parts, counts)

    def close(self) -> None:
        """The graphs stay in the task's cache."""


class _Work(NamedTuple):
    """The local work of a chunk of clients in one round."""

    memory: CohortMemory
    load: Callable[[], None]
    """writes the plan into the memory"""
    parts: list[tuple[Tensor, Tensor]]
    """per replay: the batches [k, C, ...], and which clients take these steps [k, C]"""
    counts: Tensor
    """the clients' numbers of steps, [C]"""


class _TaskSteps:
    """One task's step and the memory and graphs of its chunks, for one choice of options."""

    def __init__(self, task: BaseTask, start: Tensor) -> None:
        self.step = ClientStep(task, start)
        self._like = start.detach().reshape(-1)[:1]
        self._vectors: CohortVectors | None = None
        self._memories: dict[Hashable, CohortMemory] = {}
        self._limit: int | None = None
        self._branches: BranchStreams | None = None
        if uses_graphs(start.device):
            self._branches = BranchStreams()
            self.step.compile()

    def limit(self, one_client: Callable[[], _Work]) -> int:
        """The number of clients of a chunk. On CUDA, the memory of one client's step is measured at the first call."""
        if self._branches is None:
            return BRANCHES
        if self._limit is None:
            self._limit = min(BRANCHES, self._attempt(self._branches.chunk_limit, one_client()))
        return self._limit

    def memory(self, size: int, batches: Tensor, plan: LocalPlan) -> CohortMemory:
        """The memory of a chunk of clients."""
        key = size, tuple(batches.shape), batches.dtype, is_pulled(plan), plan.correction is None
        if key not in self._memories:
            # New graphs share the largest vectors so far; older graphs keep the vectors they were captured with.
            if self._vectors is None or self._vectors.capacity < size:
                self._vectors = CohortVectors(self.step.layout, size, self._like)
            self._memories[key] = CohortMemory(self.step.layout, self._vectors, batches, plan)
        return self._memories[key]

    def replay(self, work: _Work) -> Callable[[], None]:
        """Takes the steps whose batches are in the chunk's memory. On CUDA they are captured at the first call."""
        memory = work.memory
        if self._branches is None:
            return lambda: self._in_turn(memory)
        if memory.replay is None:
            memory.replay = self._attempt(self._branches.capture, work)
        return memory.replay

    def _attempt(self, task: Callable[[ClientStep, CohortMemory], T], work: _Work) -> T:
        """Calls `task`; if the compiled step fails, with the step as it is. Raises CaptureFailed if that fails too."""
        assert self._branches is not None
        try:
            if self.step.compiled:
                try:
                    with self.step.running():
                        self._warm_up(work)
                except Exception as error:  # the compiler raises errors of many types
                    say_fall("the network cannot be compiled", "its steps are captured without compilation", error)
                    self.step.interpret()
            with self.step.running():
                self._warm_up(work)
                return task(self.step, work.memory)
        except Exception as error:  # CUDA raises errors of many types, and so does the user's code
            raise CaptureFailed(str(error)) from error

    def _warm_up(self, work: _Work) -> None:
        assert self._branches is not None
        work.load()
        work.memory.load_steps(*work.parts[0])
        self._branches.warm_up(self.step, work.memory)

    def _in_turn(self, memory: CohortMemory) -> None:
        with self.step.running():
            for place, row in enumerate(memory.rows):
                for batch, alive in zip(memory.batches, memory.alive, strict=True):
                    self.step(row, batch[place], alive[place])


def uses_graphs(device: torch.device) -> bool:
    """Whether steps are compiled and captured."""
    return device.type == "cuda"


def even_chunks(clients: int, limit: int) -> list[slice]:
    """As few chunks of at most `limit` clients as possible, of nearly equal sizes.

    >>> even_chunks(20, 16)
    [slice(0, 10, None), slice(10, 20, None)]
    """
    count = -(-clients // limit)
    cuts = [clients * part // count for part in range(count + 1)]
    return [slice(first, last) for first, last in pairwise(cuts)]


def graph_steps(most: int, unequal: bool) -> int:
    """The steps of a graph, which is replayed until a client with the most steps has taken them all.

    >>> graph_steps(10, unequal=False), graph_steps(50, unequal=False), graph_steps(10, unequal=True)
    (10, 25, 8)
    """
    if unequal:
        return min(_UNEQUAL_STEPS, 1 << (most - 1).bit_length())
    return -(-most // -(-most // _GRAPH_STEPS))


def say_fall(problem: str, instead: str, error: BaseException) -> None:
    """Warns in one line that something slower is used."""
    reason = " ".join(str(error).split()) or type(error).__name__
    warnings.warn(f"streams: {problem}, so {instead} ({reason[:200]})", stacklevel=2)
