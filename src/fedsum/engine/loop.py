"""The reference engine: one client after the other, one gradient after the other. Slow and obvious."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..algorithms import LocalPlan
from ..participation import Ids
from ..tasks import BaseTask


def mean_gradient(
    gradient: Callable[[Tensor, Tensor], Tensor], plan: LocalPlan, batches: Iterable[Tensor]
) -> Tensor:
    """One client's round of local work: K steps from `plan.start`, returning the mean raw gradient G.

    G is accumulated, never recovered by subtracting two models, which would cancel.
    """
    x, total, K = plan.start, torch.zeros_like(plan.start), 0
    for batch in batches:
        g = gradient(x, batch)
        total += g
        K += 1
        if plan.step:
            x = x - plan.step * (g if plan.correction is None else g + plan.correction)
    return total / K


@dataclass(frozen=True)
class LoopEngine:
    task: BaseTask
    seed: int
    K: int
    batch_size: int

    def __call__(self, plan: LocalPlan, clients: Ids, t: int) -> Tensor:
        """G of each client, [S, d]; the plan's vectors are shared, [d], or stacked, [S, d]."""
        G = plan.start.new_empty(len(clients), plan.start.shape[-1])
        for row, client in enumerate(clients.tolist()):
            correction = None if plan.correction is None else _row(plan.correction, row)
            own = LocalPlan(_row(plan.start, row), plan.step, correction)
            batches = self.task.batches(self.seed, t, client, self.K, self.batch_size)
            G[row] = mean_gradient(self._gradient_of(client), own, batches)
        return G

    def _gradient_of(self, client: int) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda x, batch: self.task.gradient(x, client, batch)


def _row(vectors: Tensor, row: int) -> Tensor:
    return vectors if vectors.dim() == 1 else vectors[row]
