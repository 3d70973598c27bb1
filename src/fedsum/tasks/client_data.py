"""Clients' data in the forms that people have it in."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..base.checks import InputError
from .partition import Partition


@dataclass(frozen=True, eq=False)
class ClientData:
    """All clients' samples, and the client of each sample."""

    inputs: Tensor
    targets: Tensor
    partition: Partition


def joined(pairs: Sequence[tuple[Tensor, Tensor]]) -> ClientData:
    if not len(pairs):
        raise InputError("client_data", pairs, "at least one client")
    for client, pair in enumerate(pairs):
        if len(pair) != 2 or len(pair[0]) != len(pair[1]) or not len(pair[0]):
            raise InputError(f"client_data[{client}]", type(pair).__name__, "inputs and targets of the same samples")
        shape, first = tuple(pair[0].shape[1:]), tuple(pairs[0][0].shape[1:])
        if shape != first:
            raise InputError(f"client_data[{client}] with samples of shape", shape, f"{first}, as client 0's")
    cuts = np.cumsum([len(targets) for _, targets in pairs])
    parts = np.split(np.arange(cuts[-1]), cuts[:-1])
    inputs, targets = (torch.cat([torch.as_tensor(pair[side]) for pair in pairs]) for side in (0, 1))
    integers = targets.dim() == 1 and not targets.is_floating_point() and targets.dtype != torch.bool
    labels = targets.numpy() if integers and targets.min() >= 0 else None
    return ClientData(inputs, targets, Partition(parts, labels))


def check_data(data: ClientData, test_data: tuple[Tensor, Tensor] | None) -> None:
    if len(data.inputs) != len(data.targets):
        raise InputError("client_data with targets", len(data.targets), f"as many as inputs, {len(data.inputs)}")
    last = max(int(part.max()) for part in data.partition.parts)
    if last >= len(data.inputs):
        raise InputError("client_data.partition with sample", last, f"samples from 0 to {len(data.inputs) - 1}")
    if test_data is not None:
        tensors = len(test_data) == 2 and all(isinstance(side, Tensor) for side in test_data)
        if not tensors or len(test_data[0]) != len(test_data[1]) or not len(test_data[0]):
            raise InputError("test_data", type(test_data).__name__, "a tensor of inputs and one of as many targets")
