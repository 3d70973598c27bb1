"""Gradient clipping and weight decay: a task whose gradients have both."""

from typing import Any, Self

import torch
from torch import Tensor

from ..tasks import BaseTask
from .own_gradients import gradient_of, gradients_of


class Regularised:
    """The task with clipped gradients and weight decay, for every engine: g <- g min(1, clip / ||g||) + decay x.

    As in torch, the gradient is clipped first, and weight decay is not clipped. G is the mean of these gradients, so
    every algorithm treats them as the gradients of the client's loss.

    Args:
      task: the task.
      clip: largest norm of a gradient, or None.
      weight_decay: the weight of x, 0 for none.
    """

    def __init__(self, task: BaseTask, clip: float | None, weight_decay: float) -> None:
        self.task, self.clip, self.weight_decay = task, clip, weight_decay

    @property
    def key(self) -> tuple[float | None, float]:
        """The options by which captured steps differ."""
        return self.clip, self.weight_decay

    def regularise(self, g: Tensor, x: Tensor) -> Tensor:
        """Gradients [d] or [C, d] at the models x."""
        if self.clip is not None:
            # A factor above 1 would enlarge the gradient; a norm of 0 gives the factor 1.
            g = g * (self.clip / g.norm(dim=-1, keepdim=True).clamp(min=self.clip))
        return g + self.weight_decay * x if self.weight_decay else g

    def gradient(self, x: Tensor, client: int, batch: Tensor) -> Tensor:
        return self.regularise(gradient_of(self.task)(x, client, batch), x)

    def gradients(self, x: Tensor, clients: Tensor, batch: Tensor) -> Tensor:
        return self.regularise(gradients_of(self.task)(x, clients, batch), x)

    # The rest is the task's.

    @property
    def n(self) -> int:
        return self.task.n

    @property
    def has_dropout(self) -> bool:
        return self.task.has_dropout

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        return type(self)(self.task.to(device, dtype), self.clip, self.weight_decay)

    def init(self, seed: int) -> Tensor:
        return self.task.init(seed)

    def batches(self, seed: int, t: int, client: int, K: int, batch_size: int) -> Tensor:
        return self.task.batches(seed, t, client, K, batch_size)

    def evaluate(self, x: Tensor) -> dict[str, float]:
        return self.task.evaluate(x)

    def model(self, x: Tensor) -> Any:
        return self.task.model(x)


def regularised(task: BaseTask, clip: float | None, weight_decay: float) -> BaseTask:
    """The task with clipped gradients and weight decay; the task itself without either."""
    return task if clip is None and not weight_decay else Regularised(task, clip, weight_decay)
