"""The evaluation of a Task: a row of metrics, and each client's loss and accuracy."""

import math
import warnings
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.checks import InputError
from .network import Outputs
from .partition import Partition
from .scoring import Groups, Scores, class_labels, has_sample_losses, score, with_shapes

if TYPE_CHECKING:
    from .task import Task

ClientScores = dict[str, NDArray[np.float64]]
"""arrays [N] of one number per client: `loss`, and `accuracy` for class labels"""
_WARNED: "WeakKeyDictionary[Task, set[str]]" = WeakKeyDictionary()
"""metrics that are NaN for want of a second class; not in the task, whose attributes identify a run"""
_PROBED = 16
"""samples on which `has_sample_losses` is decided"""


def evaluate(task: "Task", x: Tensor, outputs: Outputs, per_client: bool) -> tuple[dict[str, float], ClientScores]:
    """Metrics at x, and with `per_client` the scores of every client, with as few passes over the data as possible."""
    with with_shapes("in the model or the loss: inputs", task.inputs, task.targets):
        train = score(outputs(x, task.inputs), task.targets, task.loss, task.threshold, gather=_on(task, "train"))
    row = {"train_loss": train.loss} | _own_metrics(task, "train", train, task.targets)
    clients: ClientScores = {}
    if task.test_data:
        inputs, targets = task.test_data
        pooled = task.client_test is not None and inputs is task.client_test.inputs
        groups = None
        if per_client:
            groups = _client_groups(task) if pooled else _label_groups(task) if task.client_test is None else None
        with with_shapes("in the model or the loss: test inputs", inputs, targets):
            gather = _on(task, "test")
            test = score(outputs(x, inputs), targets, task.loss, task.threshold, gather=gather, groups=groups)
        row["test_loss"] = test.loss
        if test.accuracy is not None:
            row["test_accuracy"] = test.accuracy
        row |= _own_metrics(task, "test", test, targets)
        if groups is not None:
            clients = _of_clients(test) if pooled else _of_labels(test, task.label_shares)
    if per_client and not clients:
        clients = score_clients(task, x, outputs)
    return row, clients


def score_clients(task: "Task", x: Tensor, outputs: Outputs) -> ClientScores:
    """The scores of every client, in a pass of their own."""
    if task.client_test is not None:
        inputs, targets = task.client_test.inputs, task.client_test.targets
        groups = _client_groups(task)
        return _of_clients(score(outputs(x, inputs), targets, task.loss, task.threshold, groups=groups))
    if not task.test_data:
        accepted = "needs data to evaluate on: Task(..., test_data), or each client's own, client_test_data"
        raise InputError("per_client", True, accepted)
    inputs, targets = task.test_data
    scores = score(outputs(x, inputs), targets, task.loss, task.threshold, groups=_label_groups(task))
    return _of_labels(scores, task.label_shares)


def label_shares(targets: Tensor, test_targets: Tensor, partition: Partition) -> NDArray[np.float64]:
    """The share of each label in each client's training data, [N, labels], among the labels of the test set."""
    labels, test_labels = class_labels(targets), class_labels(test_targets)
    if labels is None or test_labels is None:
        accepted = "needs class labels, or each client's own data: Task(..., client_test_data=...)"
        raise InputError("per_client", True, accepted)
    count = int(max(labels.max(), test_labels.max())) + 1
    all_labels = labels.cpu().numpy()
    owners = np.repeat(np.arange(partition.n), partition.sizes)
    flat = owners * count + all_labels[np.concatenate(partition.parts)]
    counts = np.bincount(flat, minlength=partition.n * count).reshape(partition.n, count).astype(np.float64)
    counts[:, np.bincount(test_labels.cpu().numpy(), minlength=count) == 0] = 0.0
    totals = counts.sum(1, keepdims=True)
    if not totals.all():
        accepted = "no sample of the test set has one of its labels; give client_test_data"
        raise InputError("per_client for client", int(np.flatnonzero(totals == 0)[0]), accepted)
    shares: NDArray[np.float64] = counts / totals
    return shares


def _on(task: "Task", data_set: str) -> bool:
    return any(data_set in metric.on for metric in task.metrics.values())


def _own_metrics(task: "Task", data_set: str, scores: Scores, targets: Tensor) -> dict[str, float]:
    """The task's own metrics on a data set. NaN after divergence, as a user's function may refuse such outputs."""
    outputs = scores.outputs
    if outputs is None:
        return {}
    # Minus infinity is no divergence if the loss is finite: a model may mask classes with it.
    diverged = not math.isfinite(scores.loss) or bool(outputs.isnan().any())
    if diverged:
        return {f"{data_set}_{name}": math.nan for name, metric in task.metrics.items() if data_set in metric.on}
    return {
        f"{data_set}_{name}": _own_metric(task, data_set, name, outputs, targets.cpu())
        for name, metric in task.metrics.items()
        if data_set in metric.on
    }


def _own_metric(task: "Task", data_set: str, name: str, outputs: Tensor, targets: Tensor) -> float:
    """A metric's value. If it is NaN because all targets are equal, as for an AUC, one warning per run says so."""
    metric = task.metrics[name]
    if bool((targets != targets[0]).any()):
        return metric.value(name, outputs, targets)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        value = metric.value(name, outputs, targets)
    column = f"{data_set}_{name}"
    if not math.isnan(value):
        for note in notes:
            warnings.warn_explicit(note.message, note.category, note.filename, note.lineno)
    elif column not in (warned := _WARNED.setdefault(task, set())):
        warned.add(column)
        label = targets[0].tolist()
        warnings.warn(
            f"{column} is NaN in every evaluation: all {len(targets)} targets of the {data_set} set are {label}; give"
            " the set samples of every class, or use another metric",
            stacklevel=2,
        )
    return value


def _label_groups(task: "Task") -> Groups:
    """The test set by label."""
    assert task.test_data is not None
    count, labels = task.label_shares.shape[1], class_labels(task.test_data[1])
    assert labels is not None  # as `label_shares` has checked
    return Groups(labels, count, _sample_losses(task, *task.test_data))


def _client_groups(task: "Task") -> Groups:
    """The clients' own test data by client."""
    data = task.client_test
    assert data is not None
    # Samples of no client are a group of their own, the last one.
    of_sample = torch.full((len(data.targets),), data.partition.n, dtype=torch.int64)
    for client, part in enumerate(data.partition.parts):
        of_sample[torch.from_numpy(part)] = client
    return Groups(of_sample.to(task.device), data.partition.n + 1, _sample_losses(task, data.inputs, data.targets))


def _sample_losses(task: "Task", inputs: Tensor, targets: Tensor) -> bool:
    """Decided at the initial model of seed 0, so that a resumed run decides alike."""
    with torch.no_grad():
        outputs = task.model(task.init(0))(task.prepared(inputs[:_PROBED]))
    return has_sample_losses(task.loss, outputs, targets[:_PROBED])


def _of_groups(scores: Scores) -> ClientScores:
    assert scores.group_loss is not None
    clients = {"loss": scores.group_loss.numpy()}
    return clients if scores.group_accuracy is None else clients | {"accuracy": scores.group_accuracy.numpy()}


def _of_clients(scores: Scores) -> ClientScores:
    """Without the group of `_client_groups` that belongs to no client."""
    return {name: values[:-1] for name, values in _of_groups(scores).items()}


def _of_labels(scores: Scores, shares: NDArray[np.float64]) -> ClientScores:
    """Means over labels, weighted by each client's shares. Labels without test samples have no weight."""
    return {name: shares @ np.nan_to_num(values) for name, values in _of_groups(scores).items()}
