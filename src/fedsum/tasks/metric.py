"""A user's own metric, and which direction of it is better."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..base.checks import InputError
from ..base.metrics import BETTER, DIRECTIONS, Better
from .scoring import with_shapes

SETS = ("test", "train")


@dataclass(frozen=True)
class Metric:
    """Your own metric: a number computed from all outputs of a data set at once.

    Args:
      fn: of (outputs, targets), tensors on the CPU; returns a number.
      better: "higher" or "lower". Grid searches, tables and reports use it.
      on: the data sets it is computed on: "test", "train" or both, as a tuple.

    >>> from sklearn.metrics import roc_auc_score
    >>> auc = Metric(lambda outputs, targets: roc_auc_score(targets, outputs), better="higher")
    >>> auc.fn(torch.tensor([0.1, 0.9]), torch.tensor([0, 1]))
    1.0
    """

    fn: Callable[[Tensor, Tensor], Any]
    better: Better
    on: tuple[str, ...] | str = ("test",)

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise InputError("fn", self.fn, "a function of (outputs, targets)")
        check_better("better", self.better)
        on = (self.on,) if isinstance(self.on, str) else tuple(self.on)
        if not on or any(name not in SETS for name in on):
            raise InputError("on", self.on, "'test', 'train', or both as a tuple")
        object.__setattr__(self, "on", on)

    def value(self, name: str, outputs: Tensor, targets: Tensor) -> float:
        """The metric; an error names it."""
        with torch.no_grad(), with_shapes(f"in metrics[{name!r}]: outputs", outputs, targets):
            value = self.fn(outputs, targets)
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError):
            kind = type(value).__name__
            raise InputError(f"metrics[{name!r}]", kind, "a function that returns one number") from None


def check_better(field: str, better: Any) -> Better:
    """Returns `better` if it is "higher" or "lower", and raises an InputError otherwise.

    >>> check_better("better", "higher")
    'higher'
    """
    if better not in DIRECTIONS:
        raise InputError(field, better, "'higher' or 'lower'")
    return better  # type: ignore[no-any-return]


def check_metrics(metrics: Mapping[str, Metric] | None, test_data: bool) -> dict[str, Metric]:
    """A task's own metrics by name; refuses names that fedsum uses, and metrics on a test set that is not given."""
    for name, metric in (metrics or {}).items():
        if not isinstance(metric, Metric):
            raise InputError(f"metrics[{name!r}]", type(metric).__name__, "fedsum.Metric(fn, better='higher')")
        if not isinstance(name, str) or not name.isidentifier() or any(f"{s}_{name}" in BETTER for s in SETS):
            raise InputError("metrics", name, "another name: letters, digits and _, and not loss or accuracy")
        if "test" in metric.on and not test_data:
            raise InputError(f"metrics[{name!r}]", "test", "the task has no test_data; give it, or use on='train'")
    return dict(metrics or {})


def directions_of(task: object) -> dict[str, Better]:
    """Whether higher or lower values of a task's own metrics are better, by the metric's name.

    A task states it in an attribute `better`, such as {"test_auc": "higher"}. `Task` fills it from its metrics.

    >>> class Own:
    ...     better = {"test_auc": "higher"}
    >>> directions_of(Own())
    {'test_auc': 'higher'}
    """
    stated = getattr(task, "better", {})
    return {str(name): check_better(f"better[{name!r}]", better) for name, better in dict(stated).items()}
