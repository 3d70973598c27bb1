"""A task's network and its loss as records, from which an engine can compute them in its own way."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .transforms import Augment

Loss = Callable[[Any, Tensor], Tensor]
Prepare = Callable[[Tensor, torch.dtype], Tensor]
Outputs = Callable[[Tensor, Tensor], Iterable[tuple[slice, Any]]]
"""a function of x and all inputs of a set, before preparation; it yields, per chunk, the samples and their outputs"""


@dataclass(frozen=True, eq=False)
class Network:
    """A network and its loss, from which an engine computes a task's gradients and evaluations with its own kernels.

    Functions are the task's methods, for the parts of the work that an engine leaves to the task.
    """

    training: nn.Module | None
    """the module in training mode; None if the task overrides how gradients follow from the module"""
    own_samples: bool
    """whether the task overrides how samples follow from a batch; engines must then take them from `samples`"""
    evaluation: nn.Module | None
    """the module in evaluation mode; None if the task overrides a step of evaluation"""
    names: tuple[str, ...]
    """of the trained parameters, in their order in x"""
    shapes: tuple[torch.Size, ...]
    """of the trained parameters"""
    loss: Loss
    prepare: Prepare | None
    augment: Augment | None
    inputs: Tensor
    """all training samples, before preparation"""
    targets: Tensor
    scale: Tensor | None
    """factor of each client's gradient, [N]; None if all are 1"""
    device: torch.device
    dtype: torch.dtype
    samples: Callable[[Tensor], tuple[Tensor, Tensor]]
    """prepared inputs and targets of a batch"""
    two_samples: Callable[[], tuple[Tensor, Tensor]]
    """prepared inputs and targets for a trial of the module"""
    prepared: Callable[[Tensor], Tensor]
    """inputs as the module takes them"""
    chunks: Callable[[int, int], Iterator[slice]]
    """slices of a set, from its number of samples and the activations held at a time, in sizes of the input"""
    outputs: Outputs
    """of the evaluation module"""
    evaluate: Callable[[Tensor, Outputs], dict[str, float]]
    """the task's metrics at x, computed from given outputs"""
    evaluate_clients: Callable[[Tensor, Outputs], tuple[dict[str, float], Any]]
    """the task's metrics and every client's scores at x, computed from given outputs"""

    def parameters(self, vectors: Tensor) -> dict[str, Tensor]:
        """Stacked flat vectors [C, d] as parameters by name, [C, *shape]."""
        pieces = torch.split(vectors, [shape.numel() for shape in self.shapes], dim=1)
        named = zip(self.names, pieces, self.shapes, strict=True)
        return {name: piece.view(len(piece), *shape) for name, piece, shape in named}


@dataclass(frozen=True, eq=False)
class ClientLoss:
    """A task's loss as a function of separate parameter tensors, for engines with their own layout of the parameters.

    >>> import fedsum
    >>> loss = client_loss_of(fedsum.tasks.vision("digits", clients=3))
    >>> sum(shape.numel() for shape in loss.shapes) == len(fedsum.tasks.vision("digits", clients=3).init(0))
    True
    """

    shapes: tuple[torch.Size, ...]
    """of the trained parameters, in their order in x"""
    filters: tuple[bool, ...]
    """which of them are filters of two-dimensional convolutions without groups; convolutions take them in any layout"""
    loss: Callable[[Sequence[Tensor], Tensor], Tensor]
    """from the parameters, in `compute_dtype`, and a batch"""
    within: Callable[[Sequence[Tensor], Callable[[], Tensor]], Tensor]
    """calls a function while the module has these parameters, as a backward pass may need"""
    scale: Tensor | None
    """factor of each client's loss, [N]; None if all are 1"""
    compute_dtype: torch.dtype
    """of the network's arithmetic; x may have more bits"""


def client_loss_of(task: object) -> ClientLoss | None:
    """The `ClientLoss` of a task whose class defines `as_client_loss`; None for every other task.

    >>> import fedsum
    >>> client_loss_of(fedsum.tasks.Quadratic.random(3, 2)) is None
    True
    """
    as_client_loss = getattr(type(task), "as_client_loss", None)
    loss: ClientLoss | None = None if as_client_loss is None else as_client_loss(task)
    return loss


def network_of(task: object) -> Network | None:
    """The `Network` of a task whose class defines `as_network`; None for every other task.

    `as_network` is looked up on the class, so that a wrapper that forwards attributes is not mistaken for the task
    inside it.
    """
    as_network = getattr(type(task), "as_network", None)
    network: Network | None = None if as_network is None else as_network(task)
    return network
