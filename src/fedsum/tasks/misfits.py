"""Models, losses and targets that do not fit, found on two samples before training."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..base.checks import InputError
from .network import Loss

_WIDTHS: dict[type[nn.Module], tuple[str, int]] = {
    nn.Linear: ("in_features", -1),
    nn.Conv1d: ("in_channels", -2),
    nn.Conv2d: ("in_channels", -3),
}
"""per layer, its attribute with the size of the inputs, and the dimension that has this size"""


def trial_outputs(module: nn.Module, small_batch: Callable[[], Tensor], check_sizes: bool) -> Any:
    """The outputs of a small batch; None if the model fails on it.

    `check_sizes` refuses a layer that gets inputs of another size. A module that fails otherwise fails in training,
    where the error is reported.
    """
    hooks = [
        layer.register_forward_pre_hook(_size_check(name, *_WIDTHS[type(layer)]))
        for name, layer in module.named_modules()
        if check_sizes and type(layer) in _WIDTHS
    ]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return module(small_batch())
    except InputError:
        raise
    except Exception:
        return None
    finally:
        for hook in hooks:
            hook.remove()


def _size_check(name: str, attribute: str, dimension: int) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def check(layer: nn.Module, arguments: tuple[Any, ...]) -> None:
        inputs, size = arguments[0] if arguments else None, getattr(layer, attribute)
        if not isinstance(inputs, Tensor) or inputs.dim() < -dimension or inputs.shape[dimension] == size:
            return
        flat = inputs[0].numel() == size
        way_out = "put nn.Flatten() before it" if flat else f"use {inputs.shape[dimension]}, or change the inputs"
        accepted = f"the layer gets inputs of shape {list(inputs.shape[1:])}; {way_out}"
        raise InputError(".".join(filter(None, ("model", name, attribute))), size, accepted)

    return check


def refuse_misfit(loss: Loss, outputs: Any, targets: Tensor, test_targets: Tensor | None) -> None:
    """Refuses targets that the loss cannot take with the outputs of a small batch.

    The loss is called with the smallest and the largest target. An error is raised only if the loss fails and accepts
    corrected targets or outputs.
    """
    if not isinstance(outputs, Tensor) or outputs.dim() != 2 or targets.dim() != 1 or targets.is_complex():
        return
    sets = [targets] if test_targets is None or test_targets.dim() != 1 else [targets, test_targets]
    smallest, largest = min(values.min() for values in sets), max(values.max() for values in sets)
    ends = torch.stack([smallest, largest])[-len(outputs) :]
    if _accepts(loss, outputs, ends):
        return
    classes, low, high = outputs.shape[1], int(smallest), int(largest)
    dtype = str(targets.dtype).removeprefix("torch.")
    whole = all(bool((values == values.long()).all()) for values in sets)
    if whole and _accepts(loss, outputs, ends.long().clamp(0, classes - 1)):
        if low < 0 or high - low < classes <= high:
            way_out = "number them from 0" if low < 0 else f"use targets - {low}"
            raise InputError("targets", f"labels {low} to {high}", f"the loss takes labels from 0; {way_out}")
        if high >= classes:
            accepted = f"the targets have the labels {low} to {high}; give it {high + 1} outputs"
            raise InputError("model", f"{classes} output{'s' * (classes > 1)}", accepted)
        raise InputError("targets", dtype, "this loss takes labels of dtype int64; use targets.long()")
    if classes == 1 and _accepts(loss, outputs[:, 0], ends.to(outputs.dtype)):
        n, numbers = len(targets), "targets" if targets.is_floating_point() else "targets.float()"
        accepted = f"the outputs have the shape [{n}, 1]; in the loss, use outputs[:, 0] and {numbers}"
        raise InputError("targets of shape", [n], accepted)


def _accepts(loss: Loss, outputs: Tensor, targets: Tensor) -> bool:
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loss(outputs, targets)
    except Exception:
        return False
    return True
