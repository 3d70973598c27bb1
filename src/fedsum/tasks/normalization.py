"""Normalization without batch statistics."""

import copy
from collections.abc import Callable
from math import gcd

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy

from ..base.checks import InputError

_CHANNELS_PER_GROUP = 16


def groups(channels: int) -> int:
    """The number of groups of a GroupNorm: about 16 channels per group, as many in each.

    >>> groups(64), groups(512), groups(24), groups(100)
    (4, 32, 1, 2)
    """
    return gcd(channels, max(1, channels // _CHANNELS_PER_GROUP))


def group_norm(model: nn.Module) -> nn.Module:
    """A copy of the model with a GroupNorm in place of every BatchNorm, which `Task` can train.

    Batch statistics are buffers. All clients would share them, and the algorithms correct parameters only. A GroupNorm
    normalizes each sample by itself and has no buffers.

    Scale, shift and eps of each BatchNorm are kept, its running statistics are dropped. A group has about 16 channels.
    An InstanceNorm stays one, without running statistics.

    >>> norm = group_norm(nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64)))[1]
    >>> type(norm).__name__, norm.num_groups
    ('GroupNorm', 4)
    """
    if not isinstance(model, nn.Module):
        raise InputError("model", type(model).__name__, "a torch module")
    if any(is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers())):
        raise InputError("model", type(model).__name__, "its lazy layers have no sizes yet; run it on a batch first")
    model = copy.deepcopy(model)
    # Listed first, because the tree changes. A layer that is used twice has two paths and must stay one layer.
    new: dict[nn.Module, nn.Module | None] = {}
    for path, layer in list(model.named_modules(remove_duplicate=False)):
        if layer not in new:
            new[layer] = _replacement(layer)
        if (replacement := new[layer]) is not None:
            if not path:
                return replacement
            model.set_submodule(path, replacement)
    return model


def _replacement(layer: nn.Module) -> nn.Module | None:
    """The layer that replaces this one; None if it stays."""
    if not isinstance(layer, _BatchNorm | _InstanceNorm):
        return None
    if isinstance(layer, _InstanceNorm):
        if not layer.track_running_stats:
            return None
        new: nn.Module = type(layer)(layer.num_features, layer.eps, affine=layer.affine)
    else:
        new = nn.GroupNorm(groups(layer.num_features), layer.num_features, layer.eps, layer.affine)
    if layer.affine:
        new.weight, new.bias = layer.weight, layer.bias
    return new.train(layer.training)


def refuse_batch_statistics(module: nn.Module, small_batch: Callable[[], Tensor]) -> None:
    """Raises InputError if one training batch changes the module's buffers, which all clients share."""
    module = copy.deepcopy(module)
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    if not before:
        return
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        module(small_batch())
    for name, buffer in module.named_buffers():
        if not torch.equal(buffer, before[name]):
            raise InputError(
                f"model.{name}",
                "a buffer",
                "changes in training, as batch statistics do; fedsum.tasks.group_norm(model) has none",
            )
