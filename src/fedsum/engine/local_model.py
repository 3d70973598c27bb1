"""One client's model during its local steps on a CPU, with parameters and gradients in two flat vectors."""

import copy
from typing import Self

import torch
from torch import Tensor, nn

from ..algorithms import LocalPlan
from ..tasks import BaseTask, Network, network_of
from .cpu_layers import with_fast_dropout, with_fast_layers
from .regularised import Regularised

_TOLERANCE = 1e-3
"""largest relative difference from torch's gradient in a trial: far above rounding, far below a wrong gradient"""


class LocalModel:
    """A copy of a task's module, whose parameters are views of x and whose gradients are added to views of one vector.

    A gradient is then not gathered from the parameters, and it is added to the sum of gradients where it is computed.
    """

    def __init__(self, network: Network, module: nn.Module, regularised: Regularised | None = None) -> None:
        self._network, self._regularised = network, regularised
        self._module = with_fast_layers(copy.deepcopy(module))
        self._parameters = _trained(network, self._module)
        self._x = torch.cat([parameter.detach().reshape(-1) for parameter in self._parameters])
        self._total = torch.zeros_like(self._x)
        x, total = network.parameters(self._x[None]), network.parameters(self._total[None])
        for name, parameter in zip(network.names, self._parameters, strict=True):
            parameter.data, parameter.grad = x[name][0], total[name][0]

    @classmethod
    def of(cls, task: BaseTask) -> Self | None:
        """The local model of a task on a CPU that is trained by its module; None for every other task.

        It is used if its gradient of two samples is torch's. A module that differentiates twice, that changes its
        parameters or that looks at the classes of its layers is trained by the task's own methods.
        """
        regularised = task if isinstance(task, Regularised) else None
        network = network_of(regularised.task if regularised else task)
        if network is None or network.training is None or network.device.type != "cpu":
            return None
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            try:
                model = cls(network, network.training, regularised)
                return model if model._agrees(with_fast_dropout(copy.deepcopy(network.training))) else None
            except Exception:  # any module that fails here fails in training, where the error is reported, or does not
                return None

    def _agrees(self, module: nn.Module) -> bool:
        """Whether the gradient of two samples is that of the given module, and x stays."""
        inputs, targets = self._network.two_samples()
        x, versions = self._x.clone(), [parameter._version for parameter in self._parameters]
        torch.default_generator.manual_seed(0)
        self._backward(inputs, targets, client=0)
        torch.default_generator.manual_seed(0)
        parameters = _trained(self._network, module)
        loss = self._scaled(self._network.loss(module(inputs), targets), client=0)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        expected = torch.cat([g.to_dense().reshape(-1) for g in gradients])
        same_x = torch.equal(self._x, x) and versions == [parameter._version for parameter in self._parameters]
        return same_x and bool((self._total - expected).norm() <= _TOLERANCE * expected.norm())

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
        loss = self._scaled(self._network.loss(self._module(inputs), targets), client)
        # Other tensors that need gradients, such as those of a loss with parameters, get none.
        torch.autograd.backward(loss, inputs=self._parameters)

    def _scaled(self, loss: Tensor, client: int) -> Tensor:
        return loss if self._network.scale is None else loss * self._network.scale[client]


def _trained(network: Network, module: nn.Module) -> list[nn.Parameter]:
    """The trained parameters, in their order in x."""
    parameters = dict(module.named_parameters())
    return [parameters[name] for name in network.names]
