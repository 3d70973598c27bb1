"""The reference engine: one client after the other, one gradient after the other. Slow and obvious."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ..algorithms import LocalPlan
from ..participation import Ids
from ..tasks import BaseTask
from .dropout import keyed_noise


def mean_gradient(gradient: Callable[[Tensor, Tensor], Tensor], plan: LocalPlan, batches: Iterable[Tensor]) -> Tensor:
    """One client's round of local work: K steps from `plan.start`, returning the mean raw gradient G.

    G is accumulated, never recovered by subtracting two models, which would cancel.
    """
    # In place, on a copy: for a large model the passes over its vector are a good part of the work.
    x, total, K = plan.start.clone(), torch.zeros_like(plan.start), 0
    for batch in batches:
        g = gradient(x, batch)
        total += g
        K += 1
        if plan.step:
            x.sub_(g if plan.correction is None else g + plan.correction, alpha=plan.step)
    return total.div_(K)


def client_work(task: BaseTask, plan: LocalPlan, client: int, t: int, *, seed: int, K: int, batch_size: int) -> Tensor:
    """G of one client in round t, as every engine that takes clients one by one computes it."""
    batches = task.batches(seed, t, client, K, batch_size)
    with keyed_noise(task, seed, t, client, plan.start.device):
        return mean_gradient(lambda x, batch: task.gradient(x, client, batch), plan, batches)


class LoopEngine:
    """Any device. On a CPU with one thread, so that the bits do not depend on the machine's cores."""

    def __init__(self, task: BaseTask, seed: int, K: int, batch_size: int) -> None:
        self.task, self.seed, self.K, self.batch_size = task, seed, K, batch_size

    def __call__(self, plan: LocalPlan, clients: Ids, t: int) -> Tensor:
        """G of each client, [S, d]; the plan's vectors are shared, [d], or stacked, [S, d]."""
        G = plan.start.new_empty(len(clients), plan.start.shape[-1])
        with one_thread():
            for row, client in enumerate(clients.tolist()):
                G[row] = client_work(
                    self.task, own_plan(plan, row), client, t, seed=self.seed, K=self.K, batch_size=self.batch_size
                )
        return G

    def close(self) -> None:
        """Nothing is held."""


def own_plan(plan: LocalPlan, row: int) -> LocalPlan:
    """The plan of one client of a cohort."""

    def own(vectors: Tensor) -> Tensor:
        return vectors if vectors.dim() == 1 else vectors[row]

    return LocalPlan(own(plan.start), plan.step, None if plan.correction is None else own(plan.correction))


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
