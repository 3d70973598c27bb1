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

FINAL_ROUNDS = 50
"""a final value is the mean over the last 50 rounds, because the accuracy of a single round is noisy"""


def final_value(by_round: Mapping[int, float], last: int = FINAL_ROUNDS) -> float:
    """The mean over the evaluations of the last `last` rounds; NaN without evaluations.

    Round 0, the initial model, never counts, not even in a run shorter than `last` rounds.

    Args:
      by_round: the metric's values, by the number of rounds done.
      last: the number of rounds.

    >>> final_value({0: 0.1, 50: 0.7, 100: 0.8})
    0.8
    >>> final_value({0: 0.1, 10: 0.5, 20: 0.7})
    0.6
    """
    end = max(by_round, default=0)
    values = [value for t, value in by_round.items() if t > max(0, end - last)]
    return statistics.fmean(values) if values else math.nan


def smaller_is_better(metric: str) -> bool:
    return not metric.endswith("accuracy")
