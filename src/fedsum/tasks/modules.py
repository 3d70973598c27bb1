"""The modules of a task: made under a seed, and copied for evaluation."""

import copy
from collections.abc import Callable

import torch
from torch import nn


def under_seed(seed: int, make: Callable[[], nn.Module]) -> nn.Module:
    """The module that `make` returns with torch's random numbers under that seed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed every CUDA device
        return make()


def evaluation_copy(module: nn.Module) -> nn.Module:
    """A copy in evaluation mode that shares the parameters, which are large and which a task replaces by x anyway."""
    return copy.deepcopy(module, {id(parameter): parameter for parameter in module.parameters()}).eval()
