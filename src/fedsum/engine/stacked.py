"""A whole cohort as one computation: the clients' models are stacked, [C, d], and take every step together."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from ..algorithms import LocalPlan
from ..participation import Ids
from ..tasks import BaseTask
from .dropout import keyed_noise
from .local_step import is_pulled, local_step

_CHUNK = 32


def cohort_steps(
    gradients: Callable[[Tensor, Tensor], Tensor],
    plan: LocalPlan,
    batches: Iterable[Tensor],
) -> Tensor:
    """The sum of the raw gradients over the steps, [C, d]; `gradients` takes stacked models and batches."""
    x, total = plan.start, torch.zeros_like(plan.start)
    correction = 0.0 if plan.correction is None else plan.correction
    scalars = (plan.pull, plan.decay) if is_pulled(plan) else ()
    for batch in batches:
        x, total = local_step(x, total, gradients(x, batch), plan.start, correction, plan.step, *scalars)
    return total


class BatchedEngine:
    """Stacked clients on any device, in chunks, without a compiler and without CUDA graphs."""

    def __init__(self, task: BaseTask, seed: int, K: int, batch_size: int) -> None:
        self.task, self.seed, self.K, self.batch_size = task, seed, K, batch_size

    def __call__(self, plan: LocalPlan, clients: Ids, t: int) -> Tensor:
        """G of each client, [S, d]; the plan's vectors are shared, [d], or stacked, [S, d]."""
        G = plan.start.new_empty(len(clients), plan.start.shape[-1])
        for first in range(0, len(clients), _CHUNK):
            chunk = slice(first, first + _CHUNK)
            chunk_clients = clients[chunk]
            batches = stacked_batches(self.task, self.seed, t, chunk_clients, self.K, self.batch_size).to(G.device)
            ids = torch.from_numpy(chunk_clients).to(G.device)
            correction = None if plan.correction is None else rows(plan.correction, chunk)
            start = rows(plan.start, chunk).expand(len(chunk_clients), -1)
            chunk_plan = replace(plan, start=start, correction=correction)
            with keyed_noise(self.task, self.seed, t, first, G.device):
                G[chunk] = cohort_steps(partial(self._gradients, ids), chunk_plan, batches)
        return G.div_(self.K)

    def _gradients(self, clients: Tensor, x: Tensor, batch: Tensor) -> Tensor:
        return self.task.gradients(x, clients, batch)

    def close(self) -> None:
        """There is nothing to release."""


def rows(vectors: Tensor, chunk: slice) -> Tensor:
    """The chunk's rows of stacked vectors; a vector that all clients share is returned as it is."""
    return vectors if vectors.dim() == 1 else vectors[chunk]


def stacked_batches(task: BaseTask, seed: int, t: int, clients: Ids, K: int, batch_size: int) -> Tensor:
    """The batches of a cohort, [K, C, ...]. Batches whose last dimension is shorter are padded with zeros."""
    batches = [task.batches(seed, t, client, K, batch_size) for client in clients.tolist()]
    longest = max(batch.shape[-1] for batch in batches)
    return torch.stack([F.pad(batch, (0, longest - batch.shape[-1])) for batch in batches], dim=1)
