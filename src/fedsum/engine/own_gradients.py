"""The gradients of a task for one client and for stacked clients, if a subclass of `Task` overrides one form alone."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..tasks import BaseTask, Task


def gradient_of(task: BaseTask) -> Callable[[Tensor, int, Tensor], Tensor]:
    """`task.gradient`; for a subclass that overrides `gradients` alone, that of a cohort of one client."""
    if not _overrides_only(task, "gradients", "gradient"):
        return task.gradient

    def gradient(x: Tensor, client: int, batch: Tensor) -> Tensor:
        clients = torch.tensor([client], device=x.device)
        return task.gradients(x[None], clients, batch.to(x.device)[None])[0]

    return gradient


def gradients_of(task: BaseTask) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """`task.gradients`; for a subclass that overrides `gradient` alone, one client after the other."""
    if not _overrides_only(task, "gradient", "gradients"):
        return task.gradients

    def gradients(x: Tensor, clients: Tensor, batch: Tensor) -> Tensor:
        with torch.enable_grad():
            rows = zip(x, clients.tolist(), batch, strict=True)
            return torch.stack([task.gradient(own, client, own_batch) for own, client, own_batch in rows])

    return gradients


def _overrides_only(task: BaseTask, own: str, other: str) -> bool:
    def overrides(name: str) -> bool:
        return name in vars(task) or getattr(type(task), name) is not getattr(Task, name)

    return isinstance(task, Task) and overrides(own) and not overrides(other)
