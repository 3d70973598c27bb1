"""The data of a task: every client's samples, their batches, and their preparation on a device."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.checks import InputError
from ..base.keyed import Purpose, rng
from .client_data import ClientData, checked_test_data, held_out, refuse_other_features
from .client_data import client_data as as_client_data
from .evaluation import label_shares
from .memory_layout import channels_last
from .network import Prepare
from .transforms import Augment

_EVALUATION_BYTES = {"cpu": 64 * 2**20, "cuda": 2**30}
_ACTIVATIONS = 16
"""activations that torch holds at a time, in sizes of the input: a rough number that fills the device"""


class Samples:
    """The clients' samples and the test data of a `Task`, which documents the arguments."""

    def __init__(
        self,
        client_data: ClientData | Iterable[Any] | Mapping[str, Any],
        test_data: tuple[Tensor, Tensor] | ClientData | None,
        client_test_data: ClientData | Iterable[Any] | Mapping[str, Any] | None,
        prepare: Prepare | None,
        augment: Augment | None,
    ) -> None:
        data = as_client_data("client_data", client_data)
        refuse_other_features("test_data", test_data, data)
        test_data = checked_test_data(test_data)
        self.client_names, self.client_test = data.names, held_out(data, client_test_data)
        if test_data is None and self.client_test is not None:
            test_data = (self.client_test.inputs, self.client_test.targets)
        self.inputs, self.targets, self.partition, self.test_data = data.inputs, data.targets, data.partition, test_data
        self.prepare, self.augment = prepare, augment
        self.device, self.dtype = torch.device("cpu"), torch.float32
        self._use_channels_last = False  # until a trial with the model

    @property
    def n(self) -> int:
        return self.partition.n

    @property
    def client_sizes(self) -> NDArray[np.int64]:
        """The number of training samples of each client, [N]."""
        return np.array([len(part) for part in self.partition.parts])

    @cached_property
    def label_shares(self) -> NDArray[np.float64]:
        """The share of each label in each client's training data, [N, labels], among the labels of the test set."""
        if not self.test_data:
            raise InputError("test_data", None, "a test set, to weight by the clients' labels")
        return label_shares(self.targets, self.test_data[1], self.partition)

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        moved = copy.copy(self)
        moved.device, moved.dtype = device, dtype
        moved.inputs, moved.targets = self.inputs.to(device), self.targets.to(device)
        if self.client_test is not None:
            inputs, targets = self.client_test.inputs.to(device), self.client_test.targets.to(device)
            moved.client_test = replace(self.client_test, inputs=inputs, targets=targets)
        if self.test_data:
            pooled = self.client_test is not None and self.test_data[0] is self.client_test.inputs
            test_data = (inputs, targets) if pooled else (self.test_data[0].to(device), self.test_data[1].to(device))
            moved.test_data = test_data
        return moved

    def batches(self, seed: int, t: int, client: int, K: int, batch_size: int) -> Tensor:
        """Sample indices [K, B]: a shuffle of the client's samples, followed by another when it is exhausted.

        With augmentation [K, B, 4]: the index, and the codes of crop and flip.
        """
        draw = rng(seed, Purpose.BATCHES, t, client)
        part, wanted = self.partition.parts[client], K * batch_size
        shuffles = np.tile(part, (-(-wanted // len(part)), 1))
        samples = draw.permuted(shuffles, axis=1).reshape(-1)[:wanted].reshape(K, batch_size)
        if self.augment is None:
            return torch.from_numpy(samples)
        codes = self.augment.draw(draw, (K, batch_size))
        return torch.from_numpy(np.concatenate([samples[..., None], codes], axis=-1))

    def samples(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        """The inputs and targets of a batch, or of many batches stacked along further dimensions."""
        indices = batch if self.augment is None else batch[..., 0]
        inputs = self.inputs[indices]
        if self.augment is not None:
            inputs = self.augment.apply(inputs, batch[..., 1:])
        return self._prepared(inputs), self.targets[indices]

    def prepared(self, inputs: Tensor) -> Tensor:
        """Inputs as the module takes them."""
        return self._prepared(inputs)

    def _prepared(self, inputs: Tensor) -> Tensor:
        if self.prepare is not None:
            inputs = self.prepare(inputs, self.dtype)
        elif inputs.is_floating_point():
            inputs = inputs.to(self.dtype)
        on_cpu = self.device.type == "cpu" and inputs.dim() == 4  # stacked cohorts have one dimension more
        return channels_last(inputs) if on_cpu and self._use_channels_last else inputs

    def _first_inputs(self) -> Tensor:
        return self._prepared(self.inputs[:2])

    def _chunks(self, samples: int, activations: int = _ACTIVATIONS) -> Iterator[slice]:
        return self._slices(samples, activations * self.inputs[0].numel() * self.dtype.itemsize)

    def _slices(self, samples: int, bytes_per_sample: int) -> Iterator[slice]:
        size = max(1, _EVALUATION_BYTES.get(self.device.type, 2**30) // bytes_per_sample)
        for start in range(0, samples, size):
            yield slice(start, start + size)
