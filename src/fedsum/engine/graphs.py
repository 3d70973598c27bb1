"""The batched engine on CUDA: the K steps of a stacked cohort, captured in one graph and replayed.

A cohort has any size, including 0. It is covered with chunks of a few sizes; each size is captured when it is first
needed, and the last chunk is padded. Results of padded rows are discarded.

With our own kernels the capture of one size takes tenths of a second. Any other network is compiled first, about ten
seconds per size (a grouped convolution cannot have a symbolic number of groups), so it gets fewer sizes.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..algorithms import LocalPlan
from ..participation import Ids
from ..tasks import BaseTask
from . import kernels
from .cache import cache_of
from .compilation import compiled, compiling
from .dropout import keyed_noise
from .local_step import FinishedSums, is_pulled, local_step
from .own_gradients import gradients_of
from .regularised import Regularised
from .stacked import rows, stacked_batches
from .step_counts import StepCounts, cohort_counts, most_steps
from .transfer import on_device

Sizes = tuple[int, ...]
COMPILED: Sizes = (1, 2, 4, 8, 16, 20, 24, 32, 48, 64)
CAPTURED: Sizes = (1, *range(2, 65, 2))
_SMALLEST = 4
"""smaller chunks take as long and need another capture: they are used only if memory is short"""
_PER_CHUNK = 2
"""cost of one more chunk, in clients: small chunks use the device less well"""
_MEMORY_SHARE = 0.5
"""share of the free memory for the activations of one chunk"""


@lru_cache(maxsize=1024)
def cover(clients: int, sizes: Sizes) -> Sizes:
    """The cheapest chunk sizes, largest first, that hold this many clients.

    >>> cover(20, COMPILED), cover(21, COMPILED), cover(21, CAPTURED), cover(70, COMPILED), cover(0, COMPILED)
    ((20,), (24,), (22,), (64, 8), ())
    """
    sizes = tuple(size for size in sizes if size >= min(_SMALLEST, max(sizes)))
    best: list[tuple[int, Sizes]] = [(0, ())]
    for m in range(1, clients + 1):
        options = [(best[max(0, m - s)], s) for s in sizes]
        best.append(min((cost + s + _PER_CHUNK, (*chosen, s)) for (cost, chosen), s in options))
    return tuple(sorted(best[clients][1], reverse=True))


def _rounded(K: int, counts: StepCounts) -> int:
    """The steps of a graph that holds clients of up to K steps: K, or a power of two if clients have their own numbers.

    >>> _rounded(10, 10), _rounded(10, np.array([3, 10]))
    (10, 16)
    """
    return K if isinstance(counts, int) else 1 << (K - 1).bit_length()


class GraphEngine:
    """Stacked clients on CUDA. Graphs stay in the task's cache, so that later runs of the task start at once."""

    name = "batched"

    def __init__(self, task: BaseTask, seed: int, K: StepCounts, batch_size: int) -> None:
        self.task, self.seed, self.K, self.batch_size = task, seed, K, batch_size
        self._by_steps: dict[int, _Graphs] = {}

    def _graphs(self, K: int) -> "_Graphs":
        """The graphs of K steps."""
        if K in self._by_steps:
            return self._by_steps[K]
        # The options that are part of a graph. A regularised task shares the cache of its task.
        task, extra = (self.task.task, self.task.key) if isinstance(self.task, Regularised) else (self.task, None)
        arithmetic = torch.get_float32_matmul_precision(), torch.backends.cudnn.deterministic
        options = (K, self.batch_size, *arithmetic, extra)
        cached = cache_of(task).graphs
        if options not in cached:
            cached[options] = _Graphs(self.task, K, self.batch_size)
        self._by_steps[K] = cached[options]
        return self._by_steps[K]

    def __call__(self, plan: LocalPlan, clients: Ids, t: int) -> Tensor:
        """G of each client, [S, d]; the plan's vectors are shared, [d], or stacked, [S, d]."""
        with keyed_noise(self.task, self.seed, t, 0, plan.start.device):
            return self._all_chunks(plan, clients, t)

    def _all_chunks(self, plan: LocalPlan, clients: Ids, t: int) -> Tensor:
        G, first = plan.start.new_empty(len(clients), plan.start.shape[-1]), 0
        if not len(clients):
            return G
        sizes = self._graphs(_rounded(most_steps(self.K, clients), self.K)).sizes(plan.start)
        for place, size in enumerate(cover(len(clients), sizes)):
            chunk = slice(first, min(first + size, len(clients)))
            chunk_clients = clients[chunk]
            real, steps = len(chunk_clients), _rounded(most_steps(self.K, chunk_clients), self.K)
            batches = stacked_batches(self.task, self.seed, t, chunk_clients, self.K, self.batch_size, steps)
            counts = cohort_counts(self.K, chunk_clients)
            buffers, replay = self._graphs(steps).of(size, batches, plan, counts is not None)
            buffers.batches[:, :real] = on_device(batches, G.device)
            buffers.clients[:real] = on_device(torch.from_numpy(chunk_clients), G.device)
            buffers.start[:real] = rows(plan.start, chunk)
            buffers.correction[:real] = 0.0 if plan.correction is None else rows(plan.correction, chunk)
            buffers.step.fill_(plan.step)
            if is_pulled(plan):
                buffers.pull.fill_(plan.pull)
                buffers.decay.fill_(plan.decay)
            divisor: int | Tensor = steps
            if counts is not None:
                buffers.counts[:real] = on_device(counts, G.device)
                divisor = buffers.counts[:real, None]
            with keyed_noise(self.task, self.seed, t, place, G.device):
                replay()
            torch.div(buffers.total[:real], divisor, out=G[chunk])
            first += size
        return G

    def close(self) -> None:
        """The graphs stay in the task's cache."""


class _Graphs:
    """One task's graphs by chunk size, for one choice of options."""

    def __init__(self, task: BaseTask, K: int, batch_size: int) -> None:
        self.task, self.K, self.batch_size = task, K, batch_size
        self._by_size: dict[tuple[int, bool, bool], tuple[_Buffers, Callable[[], None]]] = {}
        self._buffers: _Buffers | None = None
        self._sizes: Sizes = ()
        self._pool = torch.cuda.graph_pool_handle()
        self._kernel_steps = kernels.steps(task)
        self._steps = self._kernel_steps or _compiled(gradients_of(task))

    def sizes(self, start: Tensor) -> Sizes:
        """The chunk sizes whose activations fit in memory, from the measured memory of one client."""
        if not self._sizes:
            x = start.reshape(-1, start.shape[-1])[:1]
            client = np.zeros(1, dtype=np.int64)
            batches = stacked_batches(self.task, 0, 0, client, 1, self.batch_size).to(x.device)
            clients = torch.from_numpy(client).to(x.device)
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            if self._kernel_steps:
                self._kernel_steps(x, torch.zeros_like(x), x.new_zeros(()), clients, batches)
            else:
                gradients_of(self.task)(x, clients, batches[0])
            per_client = torch.cuda.max_memory_allocated() - before + 8 * x.nbytes
            free, _ = torch.cuda.mem_get_info()
            sizes = CAPTURED if self._kernel_steps else COMPILED
            self._sizes = tuple(size for size in sizes if size == 1 or size * per_client <= _MEMORY_SHARE * free)
        return self._sizes

    def of(self, size: int, batches: Tensor, plan: LocalPlan, counted: bool) -> "tuple[_Buffers, Callable[[], None]]":
        """The buffers of the steps of this many clients, and the function that takes the steps of such a plan.

        `counted`: whether the clients take different numbers of steps.
        """
        key = size, is_pulled(plan), counted
        if key not in self._by_size:
            # New graphs share the largest buffers so far; older graphs keep the buffers they were captured with.
            if self._buffers is None or len(self._buffers.start) < size:
                self._buffers = _Buffers(size, batches, plan.start)
            buffers = self._buffers
            self._by_size[key] = buffers, _captured(self._steps, buffers.views(*key), self._pool)
        return self._by_size[key]


def _compiled(gradients: Callable[[Tensor, Tensor, Tensor], Tensor]) -> kernels.Steps:
    # All arguments are named: torch cannot compare a call with an earlier call that had more arguments.
    def one_step(
        x: Tensor,
        total: Tensor,
        clients: Tensor,
        batch: Tensor,
        start: Tensor | None,
        correction: Tensor,
        step: Tensor,
        pull: Tensor | None = None,
        decay: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        no_pull = x if start is None else start  # is not read without pull and decay
        return local_step(x, total, gradients(x, clients, batch), no_pull, correction, step, pull, decay)

    compiled_step = compiled(one_step)

    def all_steps(
        start: Tensor,
        correction: Tensor,
        step: Tensor,
        clients: Tensor,
        batches: Tensor,
        *scalars: Tensor,
        counts: Tensor | None = None,
    ) -> Tensor:
        # A copy, because the compiler would make one function for a first step from `start` itself, and another one.
        x = start.clone() if scalars else start
        total, finished = torch.zeros_like(start), FinishedSums(counts)
        with compiling():
            for batch in batches:
                start_or_none = start if scalars else None
                x, total = compiled_step(x, total, clients, batch, start_or_none, correction, step, *scalars)
                finished.step_done(total)
        return finished.sums(total)

    return all_steps


class _Buffers:
    """The memory that the graphs of up to `size` clients read and write."""

    def __init__(self, size: int, batches: Tensor, start: Tensor) -> None:
        device, d = start.device, start.shape[-1]
        self.start, self.correction, self.total = (start.new_zeros(size, d) for _ in range(3))
        self.step, self.pull, self.decay = (start.new_zeros(()) for _ in range(3))
        self.clients, self.counts = (torch.zeros(size, dtype=torch.int64, device=device) for _ in range(2))
        # Padded rows may hold any real batch.
        self.batches = batches[:, :1].expand(-1, size, *batches.shape[2:]).contiguous().to(device)
        self.start[:] = start.reshape(-1, d)[:1]

    def views(self, size: int, pulled: bool, counted: bool) -> "_Views":
        """The memory of the first `size` clients."""
        return _Views(
            state=(self.start[:size], self.correction[:size], self.step, self.clients[:size]),
            batches=self.batches[:, :size],
            scalars=(self.pull, self.decay) if pulled else (),
            counts=self.counts[:size] if counted else None,
            total=self.total[:size],
        )


class _Views(NamedTuple):
    """The arguments of `kernels.Steps`, and where the result is written."""

    state: tuple[Tensor, Tensor, Tensor, Tensor]
    batches: Tensor
    scalars: tuple[()] | tuple[Tensor, Tensor]
    counts: Tensor | None
    total: Tensor


def _captured(steps: kernels.Steps, views: _Views, pool: Any) -> Callable[[], None]:
    """The steps of the clients in these views of the buffers, as one graph."""
    # Compilation, autotuning and the creation of library handles happen before the capture, on a side stream.
    side_stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(2):
            steps(*views.state, views.batches[:1], *views.scalars, counts=views.counts)
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        views.total.copy_(steps(*views.state, views.batches, *views.scalars, counts=views.counts))
    return graph.replay
