"""Metrics: their labels in figures and tables, which direction is better, and the definition of a final value."""

import math
import statistics
from collections.abc import Mapping

LABELS = {
    "train_loss": "train loss",
    "test_accuracy": "test accuracy",
    "test_loss": "test loss",
    "error": "distance to the optimum",
    "gradient_norm_sq": "squared gradient norm",
    "communication": "vectors sent",
    "server_train_loss": "train loss of the server's model",
    "server_test_accuracy": "test accuracy of the server's model",
    "round": "round",
    "bytes": "bytes sent",
    "seconds": "seconds of training",
    "eval_seconds": "seconds of evaluation",
    "tau": "tau_t",
}

_FINAL_ROUNDS = 50
FINAL_WINDOW = f"the last {_FINAL_ROUNDS} rounds, or the last quarter of a run shorter than {4 * _FINAL_ROUNDS} rounds"
"""what a final value is a mean over, in words: a single round says little where accuracy jumps"""


def final_window(rounds: int) -> int:
    """How many of a run's last rounds its final value is a mean over.

    >>> final_window(2000), final_window(60)
    (50, 15)
    """
    return max(1, min(_FINAL_ROUNDS, rounds // 4))


def final_value(by_round: Mapping[int, float], last: int | None = None) -> float:
    """The mean over the evaluations of the last `last` rounds, by default `final_window`; NaN if there is none.

    The initial model, round 0, is no result and does not count.

    >>> final_value({0: 0.1, 50: 0.7, 90: 0.7, 100: 0.9})
    0.8
    """
    end = max(by_round, default=0)
    first = max(0, end - (final_window(end) if last is None else last))
    values = [value for t, value in by_round.items() if t > first]
    return statistics.fmean(values) if values else math.nan


def smaller_is_better(metric: str) -> bool:
    return not metric.endswith("accuracy")
