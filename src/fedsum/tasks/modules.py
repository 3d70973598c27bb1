"""The modules of a task: made under a seed, copied for evaluation, and whether they draw random numbers."""

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .models import Residual

# Layers that draw no random numbers. Keying the randomness of any other layer takes some microseconds per client.
_WITHOUT_RANDOMNESS = (
    *(nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.Identity, nn.Flatten, nn.Unflatten, nn.Embedding),
    *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.GroupNorm, nn.LayerNorm, nn.Softmax, nn.LogSoftmax),
    *(nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus),
    *(Residual, nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d),
)


def under_seed(seed: int, make: Callable[[], nn.Module]) -> nn.Module:
    """The module that `make` returns with torch's random numbers under that seed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed every CUDA device
        return make()


def evaluation_copy(module: nn.Module) -> nn.Module:
    """A copy in evaluation mode that shares the parameters, which are large and which a task replaces by x anyway."""
    return copy.deepcopy(module, {id(parameter): parameter for parameter in module.parameters()}).eval()


def within(module: nn.Module, parameters: Mapping[str, Tensor], function: Callable[[], Tensor]) -> Tensor:
    """`function()` while the module has these parameters.

    For backward passes after `functional_call`, which has already put the module's own parameters back:
    torch.utils.checkpoint computes parts of the forward pass again.
    """
    call = _Call(module)
    result: Tensor = functional_call(call, {f"module.{name}": value for name, value in parameters.items()}, (function,))
    return result


class _Call(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, function: Callable[[], Tensor]) -> Tensor:
        return function()


def may_draw(module: nn.Module) -> bool:
    """Whether the module may draw random numbers, as dropout does."""
    return any(type(layer) not in _WITHOUT_RANDOMNESS for layer in module.modules())


def draws(function: Callable[[], object]) -> bool:
    """Whether a user's function draws random numbers from torch."""
    with torch.random.fork_rng(devices=[]):
        before = torch.default_generator.get_state()
        with suppress(Exception):  # a function that fails here fails in training, where the error is reported
            function()
        return not torch.equal(before, torch.default_generator.get_state())
