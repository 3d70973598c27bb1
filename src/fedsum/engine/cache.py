"""Caches between runs of the same task: the task on its device, captured graphs and converted images.

A cache belongs to the caller's task and is freed with it. Nothing is stored in the task itself, so copies and pickles
of a task carry no caches.

Graphs refer to the task on the device. Both are therefore stored under the caller's task: a weak dictionary from the
task on the device to its graphs would keep both alive forever.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor

from ..base.checks import InputError
from ..tasks import BaseTask


@dataclass(eq=False)
class TaskCache:
    """The cache of one task on one device."""

    task: BaseTask
    """the task on the device"""
    graphs: dict[Hashable, Any] = field(default_factory=dict)
    """captured steps, by the options that are part of a graph"""
    image_sets: list[tuple[Tensor, Any]] = field(default_factory=list)
    """inputs of a set, and the same images in the kernels' layout"""


@dataclass(eq=False)
class _Binding:
    """One `task.to(device, dtype)` of the caller's task."""

    device: torch.device
    dtype: torch.dtype
    bf16: bool
    attributes: dict[str, object]
    """attributes of the caller's task at that time; references, because the id of a freed object may be reused"""
    cache: TaskCache

    def is_for(self, device: torch.device, dtype: torch.dtype, bf16: bool, attributes: dict[str, object]) -> bool:
        return (
            (self.device, self.dtype, self.bf16) == (device, dtype, bf16)
            and self.attributes.keys() == attributes.keys()
            and all(self.attributes[name] is value for name, value in attributes.items())
        )


_BINDINGS: WeakKeyDictionary[BaseTask, list[_Binding]] = WeakKeyDictionary()
"""by the caller's task"""
_CACHES: WeakKeyDictionary[BaseTask, ref[TaskCache]] = WeakKeyDictionary()
"""by the task on the device"""


def bound_task(task: BaseTask, device: torch.device, dtype: torch.dtype, precision: str = "fp32") -> BaseTask:
    """The task on that device, with vectors of that dtype; with the precision "bf16", its network computes in it.

    On CUDA a later call returns the same object, with its graphs, until an attribute of the task is replaced.
    A task whose `to` returns the task itself is not cached.
    """
    bf16 = precision == "bf16"
    if device.type != "cuda":
        return _moved(task, device, dtype, bf16)
    try:
        attributes, bindings = dict(vars(task)), _BINDINGS.setdefault(task, [])
    except TypeError:  # no attributes to compare, or a task that cannot be the key of a weak dictionary
        return _moved(task, device, dtype, bf16)
    for binding in bindings:
        if binding.is_for(device, dtype, bf16, attributes):
            return binding.cache.task
    bound = _moved(task, device, dtype, bf16)
    if bound is not task:  # otherwise the cache would keep the task alive
        cache = TaskCache(bound)
        bindings.append(_Binding(device, dtype, bf16, attributes, cache))
        _CACHES[bound] = ref(cache)
    return bound


def _moved(task: BaseTask, device: torch.device, dtype: torch.dtype, bf16: bool) -> BaseTask:
    moved = task.to(device, dtype)
    if not bf16:
        return moved
    computing_in = getattr(moved, "computing_in", None)
    if computing_in is None:
        accepted = f"{type(task).__name__} has no network that could compute in it; use 'fp32' or 'tf32'"
        raise InputError("precision", "bf16", accepted)
    computing: BaseTask = computing_in(torch.bfloat16)
    return computing


def cache_of(task: BaseTask) -> TaskCache:
    """The cache of a task that `bound_task` returned. Any other task gets an empty cache, which is not shared."""
    try:
        reference = _CACHES.get(task)
    except TypeError:  # the task cannot be the key of a weak dictionary
        reference = None
    cache = None if reference is None else reference()
    # Tasks may define equality; a cache belongs to one object.
    return cache if cache is not None and cache.task is task else TaskCache(task)
