"""What identifies a task that has no name: a digest of its data, and what its functions compute on the first batch.

Functions are compared by their output, to six digits: source and bytecode change with an editor and an interpreter
without changing a result.
"""

import dataclasses
import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..base.toml_values import DIGEST, Table
from ..tasks import BaseTask, Task

MEASURED = ("loss", "prepare", "gradient")
"""fields that are compared to six digits"""
_BATCH = 32


def task_fingerprint(task: BaseTask) -> Table:
    """N, a digest of the data and the initial model, and the output of the task's functions."""
    digest, x0 = hashlib.sha256(), task.init(0)
    add_to_digest(digest, x0)
    if isinstance(task, Task):
        tensors = [task.inputs, task.targets, *(task.test_data or ())]
        tensors += [torch.from_numpy(part) for part in task.partition.parts]
        for tensor in tensors:
            add_to_digest(digest, tensor)
        for value in (task.augment, task.gradient_norm, task.model(x0), task.scale):
            add_to_digest(digest, value)
        measured = _outputs(task, x0)
    else:
        for name, value in sorted(vars(task).items()):
            if not name.startswith("_"):  # private attributes may be caches
                add_to_digest(digest, name)
                add_to_digest(digest, value if _is_data(value) else type(value).__qualname__)
        batch = task.batches(0, 0, 0, 1, _BATCH)[0]
        measured = {"gradient": _summary(task.gradient(x0, 0, batch))}
    return {"n": task.n, DIGEST: digest.hexdigest(), **measured}


def _outputs(task: Task, x0: Tensor) -> Table:
    """The loss at x0 on the first batch of client 0, and a summary of the prepared batch."""
    inputs, targets = task.samples(task.batches(0, 0, 0, 1, _BATCH)[0])
    with torch.no_grad():
        loss = task.loss(task.model(x0)(inputs), targets)
    return {"loss": _six_digits(float(loss)), "prepare": _summary(inputs)}


def _summary(values: Tensor) -> list[float]:
    """Three numbers that a change of any value, or of their order, changes."""
    flat = values.detach().double().reshape(-1)
    order = torch.cos(torch.arange(flat.numel(), dtype=torch.float64))
    return [_six_digits(float(value)) for value in (flat.mean(), flat.square().mean().sqrt(), (flat * order).mean())]


def _six_digits(value: float) -> float:
    return float(f"{value:.6g}")


def _is_data(value: Any) -> bool:
    """Whether `repr` or the bytes of a value say all of it."""
    return isinstance(value, Tensor | np.ndarray | bool | int | float | str) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    )


def add_to_digest(digest: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        value = value.detach().cpu().contiguous().numpy()
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype} {value.shape};".encode())
        digest.update(np.ascontiguousarray(value).data)
    else:
        digest.update(f"{value!r};".encode())
