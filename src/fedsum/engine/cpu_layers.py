"""A module with layers replaced by ones that give the same result, up to rounding, and take less time on a CPU core.

Only layers of exactly torch's classes are replaced, by subclasses: names, parameters and hooks stay. A layer falls back
to torch's own method for inputs that its fast method does not take.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from . import cpu_functions
from .dropout import KeyedMasks


class _Linear(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.dtype != torch.float32 or not inputs.numel():
            return super().forward(inputs)
        rows = inputs.reshape(-1, self.in_features).contiguous()
        outputs: Tensor = cpu_functions.Linear.apply(rows, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return outputs.view(*inputs.shape[:-1], self.out_features)


class _Conv2d(nn.Conv2d):
    def forward(self, images: Tensor) -> Tensor:
        if images.dim() != 4:
            return super().forward(images)
        geometry = (self.stride, self.padding, self.dilation, self.groups)
        maps: Tensor = cpu_functions.Conv2d.apply(  # type: ignore[no-untyped-call]
            images, self.weight, self.bias, geometry
        )
        return maps


class _MaxPool2x2(nn.MaxPool2d):
    def forward(self, images: Tensor) -> Tensor:
        if images.dim() != 4 or not cpu_functions.pools_in_pairs(images):
            return super().forward(images)  # type: ignore[no-any-return]
        pooled: Tensor = cpu_functions.MaxPool2x2.apply(images)  # type: ignore[no-untyped-call]
        return pooled


class _Flatten(nn.Flatten):
    def forward(self, images: Tensor) -> Tensor:
        if images.dim() != 4 or not images.permute(0, 2, 3, 1).is_contiguous():
            return super().forward(images)
        flat: Tensor = cpu_functions.Flatten.apply(images)  # type: ignore[no-untyped-call]
        return flat


class _Dropout(nn.Dropout):
    masks: KeyedMasks

    def forward(self, values: Tensor) -> Tensor:
        return values * self.masks.draw(values, self.p) if self.training else values


class _PoolFirst(nn.Sequential):
    """A Sequential that applies a max pooling before the ReLU that precedes it: a quarter of the values for the ReLU.

    The result is the same to the bit: ReLU is monotone, and where the maximum is not positive, both gradients are 0.
    """

    def forward(self, values: Tensor) -> Tensor:
        layers = list(self)
        for i, (layer, following) in enumerate(pairwise(layers)):
            if _commute(layer, following):
                layers[i : i + 2] = following, layer
        for layer in layers:
            values = layer(values)
        return values


def with_fast_layers(module: nn.Module, masks: KeyedMasks) -> nn.Module:
    """The module itself, with its layers replaced. Dropout draws from `masks`."""
    for layer in module.modules():
        if (fast := _fast_class(layer)) is not None:
            layer.__class__ = fast
            if isinstance(layer, _Dropout):
                layer.masks = masks
    return module


def _fast_class(layer: nn.Module) -> type[nn.Module] | None:
    """The class that replaces the layer's; None if it stays."""
    of = type(layer)
    if of is nn.Linear and cpu_functions.has_fast_products():
        return _Linear
    if of is nn.Conv2d and layer.bias is not None and layer.padding_mode == "zeros" and layer.padding != "same":
        return _Conv2d
    if of is nn.MaxPool2d and _halves(layer):
        return _MaxPool2x2
    if of is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
        return _Flatten
    if of is nn.Dropout and KeyedMasks.supports(layer.p) and not layer.inplace:
        return _Dropout
    if of is nn.Sequential and any(_commute(*pair) for pair in pairwise(layer)):
        return _PoolFirst
    return None


def _halves(pool: nn.Module) -> bool:
    """Whether a max pooling halves both sides of an image."""
    sides = (pool.kernel_size, pool.stride, pool.padding, pool.dilation)
    plain = [(side, side) if isinstance(side, int) else tuple(side) for side in sides]
    return plain == [(2, 2), (2, 2), (0, 0), (1, 1)] and not (pool.return_indices or pool.ceil_mode)


def _commute(layer: nn.Module, following: nn.Module) -> bool:
    """Whether the layers are a ReLU and a max pooling, neither of which has hooks."""
    pools = isinstance(following, nn.MaxPool2d) and not following.return_indices
    return type(layer) is nn.ReLU and pools and not (_has_hooks(layer) or _has_hooks(following))


def _has_hooks(layer: nn.Module) -> bool:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(layer, kind) for kind in kinds)
