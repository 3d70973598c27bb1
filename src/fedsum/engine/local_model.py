"""One client's model during its local steps on a CPU, with parameters and gradients in two flat vectors."""

import copy
from typing import Self

import torch
from torch import Tensor, nn

from ..algorithms import LocalPlan
from ..tasks import BaseTask, Network, network_of
from .cpu_layers import with_fast_layers
from .dropout import KeyedMasks
from .regularised import Regularised


class LocalModel:
    """A copy of a task's module, whose parameters are views of x and whose gradients are added to views of one vector.

    A gradient is then not gathered from the parameters, and it is added to the sum of gradients where it is computed.
    """

    def __init__(self, network: Network, module: nn.Module, regularised: Regularised | None = None) -> None:
        self._network, self._regularised = network, regularised
        d = sum(shape.numel() for shape in network.shapes)
        self._x = torch.zeros(d, dtype=network.dtype)
        self._total = torch.zeros_like(self._x)
        self._masks = KeyedMasks()
        self._module = with_fast_layers(copy.deepcopy(module), self._masks)
        self._parameters = dict(self._module.named_parameters())
        self._parameters = {name: self._parameters[name] for name in network.names}
        x, total = network.parameters(self._x[None]), network.parameters(self._total[None])
        for name, parameter in self._parameters.items():
            parameter.data, parameter.grad = x[name][0], total[name][0]

    @classmethod
    def of(cls, task: BaseTask) -> Self | None:
        """The local model of a task on a CPU that is trained by its module; None for every other task."""
        regularised = task if isinstance(task, Regularised) else None
        network = network_of(regularised.task if regularised else task)
        if network is None or network.training is None or network.device.type != "cpu":
            return None
        with torch.random.fork_rng(devices=[]):
            # A module that differentiates twice, and any module that fails here, is trained by the task's own methods.
            try:
                model = cls(network, network.training, regularised)
                model.start_client(0, 0, 0)
                model._backward(network.prepared(network.inputs[:2]), network.targets[:2], client=0)
            except Exception:
                return None
        return model

    def start_client(self, seed: int, t: int, client: int) -> None:
        """Starts the client's dropout masks of round t."""
        self._masks.start(seed, t, client)

    def adds_up(self, plan: LocalPlan) -> bool:
        """Whether x depends on the sum of the gradients only, so that `mean_gradient` can be used."""
        return self._regularised is None and plan.pull == 0 and plan.decay == 1

    def mean_gradient(self, plan: LocalPlan, client: int, batches: Tensor) -> Tensor:
        """G of K steps with x_k = start - step * (g_0 + ... + g_{k-1} + k * correction). Valid until the next call."""
        self._x.copy_(plan.start)
        self._total.zero_()
        for k, batch in enumerate(batches):
            if k and plan.step:
                torch.sub(plan.start, self._total, alpha=plan.step, out=self._x)
                if plan.correction is not None:
                    self._x.sub_(plan.correction, alpha=k * plan.step)
            self._add_gradient(client, batch)
        return self._total.div_(len(batches))

    def gradient(self, x: Tensor, client: int, batch: Tensor) -> Tensor:
        """The gradient at x. Valid until the next call."""
        self._x.copy_(x)
        self._total.zero_()
        self._add_gradient(client, batch)
        return self._total if self._regularised is None else self._regularised.regularise(self._total, x)

    def _add_gradient(self, client: int, batch: Tensor) -> None:
        inputs, targets = self._network.samples(batch)
        self._backward(inputs, targets, client)

    def _backward(self, inputs: Tensor, targets: Tensor, client: int) -> None:
        loss, scale = self._network.loss(self._module(inputs), targets), self._network.scale
        if scale is not None:
            loss = loss * scale[client]
        # Other tensors that need gradients, such as those of a loss with parameters, get none.
        torch.autograd.backward(loss, inputs=list(self._parameters.values()))
