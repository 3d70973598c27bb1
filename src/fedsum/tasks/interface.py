"""The interface between a task and the simulator: clients with gradients, and a model to evaluate."""

from typing import Any, Protocol, Self

import torch
from torch import Tensor


class BaseTask(Protocol):
    """The interface that simulate() and its engines use. `tasks.Quadratic` is the smallest example.

    A task may also define `as_network() -> Network | None` (`tasks.Network`), as `tasks.Task` does. An engine may then
    compute gradients and evaluations from that record with kernels of its own. Tasks without this method, and tasks
    that return None, are computed by the methods below.

    For `simulate(per_client=True)` a task defines `evaluate_clients(x) -> (metrics, scores)`: the metrics of
    `evaluate`, and arrays `loss` and optionally `accuracy` with one number per client, by name.

    A task may have an attribute `client_groups`, ids of clients by the name of their group. Per-client evaluation then
    adds the mean over each group, such as `client_accuracy_night`.

    For `simulate(local_epochs=...)` a task has an attribute `client_sizes`, the number of samples of each client, [N].

    A task whose `evaluate` returns metrics of its own states their directions in an attribute `better`, such as
    {"test_auc": "higher"}. Grid searches, tables and reports use it.
    """

    @property
    def n(self) -> int:
        """N, the number of clients."""
        ...

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        """This task with its tensors on that device and in that precision."""
        ...

    def init(self, seed: int) -> Tensor:
        """x^(0), a flat vector [d]."""
        ...

    def batches(self, seed: int, t: int, client: int, K: int, batch_size: int) -> Tensor:
        """The batches of a client in round t, one per gradient, [K, ...]. They depend on nothing but the arguments.

        Their last dimension may differ between clients and rounds, as the length of sentences does. Stacked batches
        are padded with zeros at its end, which must not change a gradient.
        """
        ...

    @property
    def has_dropout(self) -> bool:
        """Whether gradients draw random numbers beyond their batches, as dropout does."""
        ...

    def gradient(self, x: Tensor, client: int, batch: Tensor) -> Tensor:
        """The stochastic gradient of the client's loss at the flat model x, on one of its batches."""
        ...

    def gradients(self, x: Tensor, clients: Tensor, batch: Tensor) -> Tensor:
        """The gradients of a cohort stacked along a first dimension: x [C, d], clients [C], batch [C, ...]."""
        ...

    def evaluate(self, x: Tensor) -> dict[str, float]:
        """Metrics of the model x: `train_loss`, the mean over all training samples, and any others."""
        ...

    def model(self, x: Tensor) -> Any:
        """The flat vector as a model."""
        ...
