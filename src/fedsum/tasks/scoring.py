"""Loss, accuracy and outputs of a data set, from the model's outputs chunk by chunk."""

import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional as F

from ..base.checks import InputError
from .network import Loss

_LOGITS, _PROBABILITIES = 0.0, 0.5
"""thresholds of a single output"""


@dataclass(frozen=True, eq=False)
class Groups:
    """The group of each sample: its label, or its client."""

    of_sample: Tensor
    """[M], from 0"""
    count: int
    sample_losses: bool
    """whether the mean loss of a batch is the mean over its samples; otherwise groups are computed one by one"""


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of one data set."""

    loss: float
    """mean over the samples"""
    accuracy: float | None
    """fraction of correct predictions; None if the outputs are no predictions of a class"""
    outputs: Tensor | None = None
    """all outputs, on the CPU, if asked for"""
    group_loss: Tensor | None = None
    """mean loss per group, [groups]; NaN for a group without samples"""
    group_accuracy: Tensor | None = None


@torch.no_grad()
def score(
    chunks: Iterable[tuple[slice, Any]],
    targets: Tensor,
    loss: Loss,
    threshold: float | None,
    *,
    gather: bool = False,
    groups: Groups | None = None,
) -> Scores:
    """Scores of a data set, in one pass over its outputs.

    Args:
      chunks: the samples and the model's outputs for them.
      targets: of all samples.
      loss: the mean over a batch.
      threshold: from `binary_threshold`, for a model with one output.
      gather: also return all outputs.
      groups: also return means per group.
    """
    # Summed on the device in float64: one transfer at the end, and no rounding error over many chunks.
    total, correct = (torch.zeros((), dtype=torch.float64, device=targets.device) for _ in range(2))
    sums = torch.zeros(3, groups.count if groups else 0, dtype=torch.float64, device=targets.device)
    classes, pieces = True, []
    for chunk, outputs in chunks:
        chunk_targets = targets[chunk]
        total += _mean_loss(loss, outputs, chunk_targets).double() * len(chunk_targets)
        hits = correct_predictions(outputs, chunk_targets, threshold)
        classes = classes and hits is not None
        if hits is not None:
            correct += hits.sum()
        if gather:
            pieces.append(_tensor("metrics", outputs).detach().cpu())
        if groups:
            outputs = _tensor("per_client", outputs)
            _add_to_groups(sums, groups, groups.of_sample[chunk], outputs, chunk_targets, loss, hits)
    n = len(targets)
    means = (sums[:2] / sums[2]).cpu() if groups else None
    return Scores(
        loss=float(total) / n,
        accuracy=float(correct) / n if classes else None,
        outputs=torch.cat(pieces) if gather else None,
        group_loss=None if means is None else means[0],
        group_accuracy=None if means is None or not classes else means[1],
    )


def _mean_loss(loss: Loss, outputs: Any, targets: Tensor) -> Tensor:
    value: Any = loss(outputs, targets)
    if not isinstance(value, Tensor) or value.numel() != 1:
        kind = f"tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise InputError("loss", f"a {kind}", "the mean over the batch, a tensor of one number")
    return value.reshape(())


def _tensor(needed_by: str, outputs: Any) -> Tensor:
    if not isinstance(outputs, Tensor):
        raise InputError(f"{needed_by} with outputs", type(outputs).__name__, "a model that returns one tensor")
    return outputs


def correct_predictions(outputs: Any, targets: Tensor, threshold: float | None) -> Tensor | None:
    """Whether each sample's class is predicted, [B]; None if the outputs are no predictions of a class."""
    if not isinstance(outputs, Tensor):
        return None
    if threshold is not None:
        return (outputs.reshape(-1) > threshold) == (targets.reshape(-1) > 0.5)
    if targets.dim() != 1 or targets.is_floating_point() or outputs.dim() != 2 or outputs.shape[1] < 2:
        return None
    return outputs.argmax(1) == targets


def _add_to_groups(
    sums: Tensor,
    groups: Groups,
    of_sample: Tensor,
    outputs: Tensor,
    targets: Tensor,
    loss: Loss,
    hits: Tensor | None,
) -> None:
    """Adds losses, correct predictions and samples to the rows of `sums`, [3, groups]."""
    if groups.sample_losses:
        sums[0].index_add_(0, of_sample, losses_of_samples(loss, outputs, targets).double())
    else:
        for group in sorted(set(of_sample.tolist())):
            samples = of_sample == group
            sums[0, group] += loss(outputs[samples], targets[samples]).double() * samples.sum()
    if hits is not None:
        sums[1].index_add_(0, of_sample, hits.double())
    sums[2].index_add_(0, of_sample, torch.ones_like(of_sample, dtype=torch.float64))


def losses_of_samples(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of each sample, as a batch of one, [B]."""
    losses: Tensor = vmap(loss)(outputs[:, None], targets[:, None])
    return losses


def has_sample_losses(loss: Loss, outputs: Any, targets: Tensor) -> bool:
    """Whether the loss of this batch is the mean over its samples. Weights per class or pairs of samples break it."""
    try:
        with torch.no_grad():
            losses, together = losses_of_samples(loss, outputs, targets), loss(outputs, targets)
    except Exception:  # a loss that vmap cannot compute
        return False
    return losses.shape == targets.shape[:1] and torch.allclose(losses.mean(), together, rtol=1e-4, atol=1e-6)


def has_one_output(outputs: Any, samples: int) -> bool:
    return isinstance(outputs, Tensor) and outputs.shape in ((samples,), (samples, 1))


def class_labels(targets: Tensor) -> Tensor | None:
    """The label of each sample, int64 from 0; None if the targets are no class labels. 0.0 and 1.0 are labels too."""
    flat = targets.reshape(-1)
    if len(flat) != len(targets):
        return None
    if flat.is_floating_point():
        return flat.long() if bool(((flat == 0) | (flat == 1)).all()) else None
    labels = flat.long()
    return labels if int(labels.min()) >= 0 else None


def binary_threshold(loss: Loss, outputs: Tensor, targets: Tensor) -> float | None:
    """The output above which a model with one output predicts label 1; None if the loss does not tell.

    0 for logits, 0.5 for probabilities. For any other loss, the threshold is found by evaluating it
    at a few outputs.

    Args:
      loss: the mean over a batch.
      outputs: of a batch; only shape and dtype are used.
      targets: of the same batch, likewise.
    """
    if isinstance(loss, nn.BCEWithLogitsLoss) or loss is F.binary_cross_entropy_with_logits:
        return _LOGITS
    if isinstance(loss, nn.BCELoss) or loss is F.binary_cross_entropy:
        return _PROBABILITIES

    def prefers_zero(output: float) -> float:
        filled = torch.full_like(outputs, output)
        one, zero = loss(filled, torch.ones_like(targets)), loss(filled, torch.zeros_like(targets))
        return float(one - zero)

    def is_logits() -> bool:
        return abs(prefers_zero(0.0)) < 1e-5 and prefers_zero(1.0) < 0 < prefers_zero(-1.0)

    def is_probabilities() -> bool:  # a likelihood; a squared error is undecided at 0.5 too, and predicts no class
        return abs(prefers_zero(0.5)) < 1e-5 and abs(prefers_zero(0.25) - math.log(3)) < 1e-3

    for threshold, holds in ((_LOGITS, is_logits), (_PROBABILITIES, is_probabilities)):
        # An output may be outside the loss's domain, such as a negative probability.
        with torch.no_grad(), suppress(Exception):
            if holds():
                return threshold
    return None


def output_threshold(outputs: Any, targets: Tensor, loss: Loss, tested: bool) -> float | None:
    """The output above which a model with one output predicts label 1; warns if the loss does not tell.

    `outputs` are of the first two samples. `tested`: whether there is a test set.
    """
    if not has_one_output(outputs, len(targets[:2])):
        return None
    labels = class_labels(targets)
    if labels is None or set(labels.tolist()) != {0, 1}:
        return None
    threshold = binary_threshold(loss, outputs, targets[:2])
    if threshold is None and tested:
        warnings.warn(
            "no test_accuracy: the model has one output, and the loss does not tell the threshold of label 1; define"
            " a metric with Task(..., metrics={...})",
            stacklevel=3,
        )
    return threshold


@contextmanager
def with_shapes(what: str, tensor: Any, targets: Tensor) -> Iterator[None]:
    """An error of a user's own function, which says nothing of fedsum's tensors, ends with a note of their shapes."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        kind = str(targets.dtype).removeprefix("torch.")
        error.add_note(f"{what} of shape {_shape(tensor)}, targets of shape {_shape(targets)}, {kind}")
        raise


def _shape(tensor: Any) -> str:
    return str(list(tensor.shape)) if isinstance(tensor, Tensor) else type(tensor).__name__
