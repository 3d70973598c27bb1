"""The memory layout of images on a CPU."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_GROUP_NORMS = (F.group_norm, torch.group_norm, torch.native_group_norm)


def channels_last(images: Tensor) -> Tensor:
    """Images in channels_last layout: convolutions and pooling on a CPU are a quarter to a third faster.

    With one channel both layouts are the same memory, and torch assumes the other one unless the strides differ.
    """
    _, channels, height, width = images.shape
    inner = images.contiguous(memory_format=torch.channels_last)
    return inner.as_strided(images.shape, (channels * height * width, 1, channels * width, channels))


def supports_channels_last(module: nn.Module, small_batch: Callable[[], Tensor]) -> bool:
    """Whether the inputs are images, and the module can be trained on them in channels_last layout.

    torch crashes (2.13, CPU) in the backward pass of a group normalization whose input is in channels_last layout and
    needs no gradient: the first layer, or a layer behind frozen layers.
    """
    watch = _GroupNormInputs()
    with torch.enable_grad(), torch.random.fork_rng(devices=[]), watch:
        try:
            inputs = small_batch()
            module(inputs)
        except Exception:  # a preparation or a module that fails here fails in training, where the error is reported
            return False
    return inputs.dim() == 4 and not watch.without_gradient


class _GroupNormInputs(TorchFunctionMode):
    """Notes whether a group normalization is called with an input that needs no gradient."""

    without_gradient = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _GROUP_NORMS:
            values = args[0] if args else kwargs["input"]
            self.without_gradient |= not values.requires_grad
        return func(*args, **kwargs)
