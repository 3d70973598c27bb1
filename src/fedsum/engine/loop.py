"""The reference engine: one client after the other, one gradient after the other."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from ..algorithms import LocalPlan
from ..participation import Ids
from ..tasks import BaseTask
from .dropout import keyed_noise
from .local_model import LocalModel
from .own_gradients import gradient_of
from .step_counts import StepCounts, steps_of


def mean_gradient(gradient: Callable[[Tensor, Tensor], Tensor], plan: LocalPlan, batches: Iterable[Tensor]) -> Tensor:
    """One client's round of local work: K steps from `plan.start`, returning G, the mean raw gradient if decay = 1.

    G is accumulated: the difference of two models would suffer from cancellation.
    """
    # In place, on a copy: for a large model, reading and writing its vector takes a good part of the time.
    x, total, K = plan.start.clone(), torch.zeros_like(plan.start), 0
    g: Tensor | None = None
    for batch in batches:
        # The step of the previous gradient. The last gradient needs none: only G is returned.
        if g is not None and plan.step:
            change = g if plan.correction is None else g + plan.correction
            if plan.pull:
                change = change + plan.pull * (x - plan.start)
            x.sub_(change, alpha=plan.step)
            del change
        del g  # before the next gradient is allocated
        g = gradient(x, batch)
        if plan.decay != 1:
            total *= plan.decay
        total += g
        K += 1
    return total.div_(K)


class ClientWork:
    """The local work of one client after the other. Every engine that trains clients one by one uses this."""

    def __init__(self, task: BaseTask, seed: int, batch_size: int) -> None:
        self._task, self._seed, self._batch_size = task, seed, batch_size
        self._local = LocalModel.of(task)

    def __call__(self, plan: LocalPlan, client: int, t: int, K: int) -> Tensor:
        """G of the client in round t. Valid until the next call."""
        task, local = self._task, self._local
        batches = task.batches(self._seed, t, client, K, self._batch_size)
        with keyed_noise(task, self._seed, t, client, plan.start.device):
            if local is None:
                gradient = gradient_of(task)
                return mean_gradient(lambda x, batch: gradient(x, client, batch), plan, batches)
            if local.adds_up(plan):
                return local.mean_gradient(plan, client, batches)
            return mean_gradient(lambda x, batch: local.gradient(x, client, batch), plan, batches)


def client_work(task: BaseTask, plan: LocalPlan, client: int, t: int, *, seed: int, K: int, batch_size: int) -> Tensor:
    """G of one client in round t, for callers that train one client only."""
    return ClientWork(task, seed, batch_size)(plan, client, t, K)


class LoopEngine:
    """Any device. A CPU runs one thread, so that the bits do not depend on the number of cores."""

    name = "loop"

    def __init__(self, task: BaseTask, seed: int, K: StepCounts, batch_size: int) -> None:
        self._K, self._client_work = K, ClientWork(task, seed, batch_size)

    def __call__(self, plan: LocalPlan, clients: Ids, t: int) -> Tensor:
        """G of each client, [S, d]; the plan's vectors are shared, [d], or stacked, [S, d]."""
        G = plan.start.new_empty(len(clients), plan.start.shape[-1])
        with one_thread():
            for row, client in enumerate(clients.tolist()):
                G[row] = self._client_work(own_plan(plan, row), client, t, steps_of(self._K, client))
        return G

    def close(self) -> None:
        """There is nothing to release."""


def own_plan(plan: LocalPlan, row: int) -> LocalPlan:
    """The plan of the cohort's client in that row."""

    def vector(vectors: Tensor) -> Tensor:
        return vectors if vectors.dim() == 1 else vectors[row]

    correction = None if plan.correction is None else vector(plan.correction)
    return replace(plan, start=vector(plan.start), correction=correction)


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
