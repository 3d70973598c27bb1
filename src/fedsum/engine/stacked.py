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
from .local_step import FinishedSums, is_pulled, local_step
from .own_gradients import gradients_of
from .step_counts import StepCounts, cohort_counts, most_steps, steps_of

_CHUNK = 32


def cohort_steps(
    gradients: Callable[[Tensor, Tensor], Tensor],
    plan: LocalPlan,
    batches: Iterable[Tensor],
    counts: Tensor | None = None,
) -> Tensor:
    """The sum of the raw gradients over the steps, [C, d]; `gradients` takes stacked models and batches.

    `counts` are the clients' own numbers of steps, [C]; default: one per batch.
    """
    x, total, finished = plan.start, torch.zeros_like(plan.start), FinishedSums(counts)
    correction = 0.0 if plan.correction is None else plan.correction
    scalars = (plan.pull, plan.decay) if is_pulled(plan) else ()
    for batch in batches:
        x, total = local_step(x, total, gradients(x, batch), plan.start, correction, plan.step, *scalars)
        finished.step_done(total)
    return finished.sums(total)


class BatchedEngine:
    """Stacked clients on any device, in chunks, without a compiler and without CUDA graphs."""

    name = "batched"

    def __init__(self, task: BaseTask, seed: int, K: StepCounts, batch_size: int) -> None:
        self.task, self.seed, self.K, self.batch_size = task, seed, K, batch_size

    def __call__(self, plan: LocalPlan, clients: Ids, t: int) -> Tensor:
        """G of each client, [S, d]; the plan's vectors are shared, [d], or stacked, [S, d]."""
        G = plan.start.new_empty(len(clients), plan.start.shape[-1])
        for first in range(0, len(clients), _CHUNK):
            chunk = slice(first, first + _CHUNK)
            chunk_clients = clients[chunk]
            batches = stacked_batches(self.task, self.seed, t, chunk_clients, self.K, self.batch_size).to(G.device)
            counts = cohort_counts(self.K, chunk_clients)
            counts = counts if counts is None else counts.to(G.device)
            ids = torch.from_numpy(chunk_clients).to(G.device)
            correction = None if plan.correction is None else rows(plan.correction, chunk)
            start = rows(plan.start, chunk).expand(len(chunk_clients), -1)
            chunk_plan = replace(plan, start=start, correction=correction)
            with keyed_noise(self.task, self.seed, t, first, G.device):
                G[chunk] = cohort_steps(partial(self._gradients, ids), chunk_plan, batches, counts)
            G[chunk] /= len(batches) if counts is None else counts[:, None]
        return G

    def _gradients(self, clients: Tensor, x: Tensor, batch: Tensor) -> Tensor:
        return gradients_of(self.task)(x, clients, batch)

    def close(self) -> None:
        """There is nothing to release."""


def rows(vectors: Tensor, chunk: slice) -> Tensor:
    """The chunk's rows of stacked vectors; a vector that all clients share is returned as it is."""
    return vectors if vectors.dim() == 1 else vectors[chunk]


def stacked_batches(
    task: BaseTask, seed: int, t: int, clients: Ids, counts: StepCounts, batch_size: int, steps: int | None = None
) -> Tensor:
    """The batches of a cohort, [K, C, ...]. Batches whose last dimension is shorter are padded with zeros.

    K is the largest number of steps in the cohort, or `steps` if that is larger. A client that takes fewer steps has
    its last batch repeated.
    """
    batches = [task.batches(seed, t, i, steps_of(counts, i), batch_size) for i in clients.tolist()]
    longest = max(batch.shape[-1] for batch in batches)
    K = steps or most_steps(counts, clients)
    padded = (F.pad(batch, (0, longest - batch.shape[-1])) for batch in batches)
    return torch.stack([batch if len(batch) == K else _repeated(batch, K) for batch in padded], dim=1)


def _repeated(batches: Tensor, K: int) -> Tensor:
    """The batches, the last one repeated until there are K."""
    return torch.cat([batches, batches[-1:].expand(K - len(batches), *batches.shape[1:])])
