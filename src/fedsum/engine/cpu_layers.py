"""A module with layers replaced by ones that give the same result, up to rounding, and take less time on a CPU core.

Only layers of exactly torch's classes are replaced, by subclasses: names, parameters and hooks stay. A layer falls back
to torch's own method for inputs that its fast method does not take.
"""

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import cpu_functions
from .cpu_functions import is_channels_last
from .dropout import dropout_mask, supports_mask


def _same_dtype(inputs: Tensor, layer: nn.Linear | nn.Conv2d) -> bool:
    """Whether a layer's arithmetic has the dtype of its inputs. torch.autocast would change it, and not in layers."""
    return inputs.dtype == layer.weight.dtype and not torch.is_autocast_enabled("cpu")


class _Linear(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.dtype != torch.float32 or not inputs.numel() or not _same_dtype(inputs, self):
            return super().forward(inputs)
        rows = inputs.reshape(-1, self.in_features).contiguous()
        outputs: Tensor = cpu_functions.Linear.apply(rows, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return outputs.view(*inputs.shape[:-1], self.out_features)


class _Conv2d(nn.Conv2d):
    @property
    def geometry(self) -> tuple[Any, ...]:
        return self.stride, self.padding, self.dilation, self.groups

    def forward(self, images: Tensor) -> Tensor:
        if images.dim() != 4 or not _same_dtype(images, self):
            return super().forward(images)
        arguments = (images, self.weight, self.bias, self.geometry)
        return cpu_functions.Conv2d.apply(*arguments)  # type: ignore[no-untyped-call,no-any-return]

    def map_shape(self, images: Tensor) -> tuple[int, ...]:
        """The shape of the feature map, [B, C, H, W]."""
        sizes = zip(images.shape[2:], self.kernel_size, self.stride, self.padding, self.dilation, strict=True)
        sides = ((side + 2 * p - d * (k - 1) - 1) // s + 1 for side, k, s, p, d in sizes)  # type: ignore[operator]
        return len(images), self.out_channels, *sides


class _MaxPool2x2(nn.MaxPool2d):
    def forward(self, images: Tensor) -> Tensor:
        if not is_channels_last(images) or any(side % 2 for side in images.shape[2:]):
            return super().forward(images)  # type: ignore[no-any-return]
        return cpu_functions.MaxPool2x2.apply(images)  # type: ignore[no-untyped-call,no-any-return]


class _Flatten(nn.Flatten):
    def forward(self, images: Tensor) -> Tensor:
        if not is_channels_last(images):
            return super().forward(images)
        return cpu_functions.Flatten.apply(images)  # type: ignore[no-untyped-call,no-any-return]


class _Embedding(nn.Embedding):
    """Its gradient is added to the rows that a batch reads. torch adds a matrix of the size of all rows."""

    def forward(self, indices: Tensor) -> Tensor:
        return F.embedding(indices, self.weight, self.padding_idx, sparse=True)


class _Dropout(nn.Dropout):
    @property
    def is_fast(self) -> bool:
        """Whether it multiplies by a mask now: a module may change its layers in `forward`."""
        return self.training and supports_mask(self.p) and not self.inplace

    def forward(self, values: Tensor) -> Tensor:
        return values * dropout_mask(values, self.p) if self.is_fast else super().forward(values)


class _Block:
    """A convolution, perhaps a dropout, a ReLU and a max pooling that follow each other in a Sequential."""

    def __init__(self, layers: list[nn.Module]) -> None:
        self._layers = layers
        self._conv: Any = layers[0]
        self._dropout: Any = layers[1] if len(layers) == 4 else None

    def __call__(self, images: Tensor) -> Tensor:
        if not self._is_fast(images):
            for layer in self._layers:
                images = layer(images)
            return images
        mask = None
        if self._dropout is not None:
            shape = self._conv.map_shape(images)
            like = torch.empty(shape, dtype=images.dtype, memory_format=torch.channels_last)
            mask = dropout_mask(like, self._dropout.p)
        arguments = (images, self._conv.weight, self._conv.bias, self._conv.geometry, mask)
        return cpu_functions.ConvBlock.apply(*arguments)  # type: ignore[no-untyped-call,no-any-return]

    def _is_fast(self, images: Tensor) -> bool:
        """Whether the layers can be computed at once. Hooks may have been added since the block was made."""
        if not is_channels_last(images) or not _same_dtype(images, self._conv) or any(map(_is_changed, self._layers)):
            return False
        if self._dropout is not None and not self._dropout.is_fast:
            return False
        return not any(side % 2 for side in self._conv.map_shape(images)[2:])


class _Blocks(nn.Sequential):
    """A Sequential that computes blocks at once. Its layers stay, for a module that also calls them one by one."""

    layers: tuple[nn.Module, ...]
    """when the steps were made; the user's module may change them"""
    steps: tuple[Any, ...]

    def forward(self, values: Tensor) -> Tensor:
        if tuple(self) != self.layers:
            return super().forward(values)  # type: ignore[no-untyped-call,no-any-return]
        for step in self.steps:
            values = step(values)
        return values


def with_fast_layers(module: nn.Module) -> nn.Module:
    """The module itself, with its layers replaced."""
    _replace(module, (_Linear, _Conv2d, _MaxPool2x2, _Flatten, _Embedding, _Dropout))
    for layer in module.modules():
        if type(layer) is nn.Sequential:
            layer.__class__ = _Blocks
            layer.layers = tuple(layer)  # type: ignore[assignment]
            layer.steps = tuple(_steps(list(layer)))  # type: ignore[assignment]
    return module


def with_fast_dropout(module: nn.Module) -> nn.Module:
    """The module itself, with the masks of `with_fast_layers` and otherwise torch's layers."""
    _replace(module, (_Dropout,))
    return module


def _replace(module: nn.Module, kinds: Collection[type[nn.Module]]) -> None:
    for layer in module.modules():
        fast = _fast_class(layer)
        if fast is not None and fast in kinds:
            layer.__class__ = fast


def _fast_class(layer: nn.Module) -> type[nn.Module] | None:
    """The class that replaces the layer's; None if it stays."""
    if type(layer) is nn.Linear and cpu_functions.has_fast_products():
        return _Linear
    if type(layer) is nn.Conv2d and layer.bias is not None and not isinstance(layer.padding, str):
        return _Conv2d if layer.padding_mode == "zeros" else None
    if type(layer) is nn.MaxPool2d and _halves(layer):
        return _MaxPool2x2
    if type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
        return _Flatten
    if type(layer) is nn.Embedding and layer.max_norm is None and not layer.scale_grad_by_freq:
        return _Embedding
    if type(layer) is nn.Dropout and supports_mask(layer.p) and not layer.inplace:
        return _Dropout
    return None


def _halves(pool: nn.MaxPool2d) -> bool:
    """Whether a max pooling halves both sides of an image."""
    sides = (pool.kernel_size, pool.stride, pool.padding, pool.dilation)
    pairs = [(side, side) if isinstance(side, int) else tuple(side) for side in sides]
    return pairs == [(2, 2), (2, 2), (0, 0), (1, 1)] and not (pool.return_indices or pool.ceil_mode)


_BLOCKS = ((_Conv2d, nn.ReLU, _MaxPool2x2), (_Conv2d, _Dropout, nn.ReLU, _MaxPool2x2))


def _steps(layers: list[nn.Module]) -> list[Any]:
    """The layers of a Sequential, with blocks in place of the layers that form one."""
    steps: list[Any] = []
    while layers:
        for kinds in _BLOCKS:
            block = layers[: len(kinds)]
            if tuple(map(type, block)) == kinds:
                steps.append(_Block(block))
                break
        else:
            block = layers[:1]
            steps += block
        layers = layers[len(block) :]
    return steps


def _is_changed(layer: nn.Module) -> bool:
    """Whether the layer has hooks or a `forward` of its own."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return "forward" in vars(layer) or any(getattr(layer, kind) for kind in kinds)
