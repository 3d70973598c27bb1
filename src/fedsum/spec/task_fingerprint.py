"""The fingerprint of a task without a name: a digest of its data, and its functions' outputs on the first batch.

Functions are compared by their outputs, to six digits: an editor or another interpreter may change source and bytecode
without changing a result.
"""

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..base.toml_values import DIGEST, Table
from ..tasks import BaseTask, Task, network_of

MEASURED = ("loss", "prepare", "gradient")
"""fields that are compared to six digits"""
_BATCH = 32
_ADDRESS = re.compile(r" at 0x[0-9a-f]+", re.IGNORECASE)


def task_fingerprint(task: BaseTask) -> Table:
    """N, a digest of the data and the initial model, and the output of the task's functions."""
    # Dropout and random preparation must give the same output every time.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return _fingerprint(task)


def _fingerprint(task: BaseTask) -> Table:
    digest, x0 = hashlib.sha256(), task.init(0)
    add_to_digest(digest, x0)
    network = network_of(task)
    if isinstance(task, Task):
        tensors = [task.inputs, task.targets, *(task.test_data or ())]
        tensors += [torch.from_numpy(part) for part in task.partition.parts]
        if task.client_test is not None:
            tensors += [task.client_test.inputs, task.client_test.targets]
            tensors += [torch.from_numpy(part) for part in task.client_test.partition.parts]
        for tensor in tensors:
            add_to_digest(digest, tensor)
        for value in (task.augment, task.gradient_norm, task.model(x0), task.scale):
            add_to_digest(digest, value)
    else:
        for name, value in sorted(vars(task).items()):
            if not name.startswith("_"):  # private attributes may be caches
                add_to_digest(digest, name)
                add_to_digest(digest, value if _is_data(value) else type(value).__qualname__)
    if isinstance(task, Task) and network is not None and network.training is not None:
        measured = _outputs(task, x0)
    else:  # a task that overrides training may not use its loss
        measured = {"gradient": _summary(task.gradient(x0, 0, task.batches(0, 0, 0, 1, _BATCH)[0]))}
    return {"n": int(task.n), DIGEST: digest.hexdigest(), **measured}


def _outputs(task: Task, x0: Tensor) -> Table:
    """The loss at x0 on the first batch of client 0, and a summary of the prepared batch."""
    inputs, targets = task.samples(task.batches(0, 0, 0, 1, _BATCH)[0])
    with torch.no_grad():
        loss = task.loss(task.model(x0)(inputs), targets)
    return {"loss": _six_digits(float(loss)), "prepare": _summary(inputs)}


def _summary(values: Tensor) -> list[float]:
    """Three numbers that change with any value and with the order of the values."""
    flat = values.detach().cpu().double().reshape(-1)
    order = torch.cos(torch.arange(flat.numel(), dtype=torch.float64))
    return [_six_digits(float(value)) for value in (flat.mean(), flat.square().mean().sqrt(), (flat * order).mean())]


def _six_digits(value: float) -> float:
    return float(f"{value:.6g}")


def _is_data(value: Any) -> bool:
    """Whether `add_to_digest` covers all of a value."""
    return isinstance(value, Tensor | np.ndarray | bool | int | float | str | list | tuple | Mapping) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    )


def add_to_digest(digest: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        value = value.float() if value.dtype == torch.bfloat16 else value  # NumPy has no bfloat16
        value = value.detach().cpu().contiguous().numpy()
    if isinstance(value, np.ndarray) and value.dtype == object:
        add_to_digest(digest, value.tolist())
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype} {value.shape};".encode())
        digest.update(np.ascontiguousarray(value).data)
    elif isinstance(value, list | tuple):
        digest.update(f"{len(value)};".encode())
        for item in value:
            add_to_digest(digest, item)
    elif isinstance(value, Mapping):
        add_to_digest(digest, [item for pair in sorted(value.items(), key=lambda pair: str(pair[0])) for item in pair])
    elif isinstance(value, set | frozenset):
        add_to_digest(digest, sorted(value, key=repr))
    else:
        # Without the addresses of functions and other objects, which differ in every process.
        digest.update(f"{_ADDRESS.sub('', repr(value))};".encode())
