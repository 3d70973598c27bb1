"""What a task is to the simulator: clients with gradients, and a model that can be judged."""

from typing import Any, Protocol, Self

import torch
from torch import Tensor


class BaseTask(Protocol):
    """What simulate() and its engines ask of a task. `tasks.Quadratic` is the smallest example."""

    @property
    def n(self) -> int:
        """N, the number of clients."""
        ...

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        """This task with its tensors there and in that precision."""
        ...

    def init(self, seed: int) -> Tensor:
        """x^(0), a flat vector [d]."""
        ...

    def batches(self, seed: int, t: int, client: int, K: int, batch_size: int) -> Tensor:
        """What client `client` draws in round t for its K gradients, [K, ...]: a function of these alone."""
        ...

    @property
    def has_dropout(self) -> bool:
        """Whether gradients draw random numbers beyond their batches, as dropout does."""
        ...

    def gradient(self, x: Tensor, client: int, batch: Tensor) -> Tensor:
        """The stochastic gradient of the client's loss at the flat model x, on one of its batches."""
        ...

    def gradients(self, x: Tensor, clients: Tensor, batch: Tensor) -> Tensor:
        """The same for a cohort stacked along a first dimension: x [C, d], clients [C], batch [C, ...]."""
        ...

    def evaluate(self, x: Tensor) -> dict[str, float]:
        """What to report of a model: `train_loss`, the mean over all training samples, and what else there is."""
        ...

    def model(self, x: Tensor) -> Any:
        """The flat vector as what it stands for."""
        ...
