"""Metrics: their labels in figures and tables, which direction is better, and the definition of a final value."""

import math
import statistics
from collections.abc import Mapping
from typing import Literal

Better = Literal["higher", "lower"]
DIRECTIONS = ("higher", "lower")

LABELS = {
    "train_loss": "train loss",
    "test_accuracy": "test accuracy",
    "test_loss": "test loss",
    "error": "distance to the optimum",
    "gradient_norm_sq": "squared gradient norm",
    "communication": "vectors sent",
    "server_train_loss": "train loss of the server's model",
    "server_test_accuracy": "test accuracy of the server's model",
    "client_accuracy_mean": "mean accuracy over clients",
    "client_accuracy_worst": "accuracy of the worst tenth of clients",
    "client_accuracy_gap": "accuracy gap between often and rarely active clients",
    "client_loss_mean": "mean loss over clients",
    "client_loss_worst": "loss of the worst tenth of clients",
    "client_loss_gap": "loss gap between rarely and often active clients",
    "round": "round",
    "bytes": "bytes sent",
    "time": "simulated seconds",
    "late": "late clients",
    "seconds": "seconds of training",
    "eval_seconds": "seconds of evaluation",
    "tau": "tau_t",
}

BETTER: dict[str, Better] = {
    "train_loss": "lower",
    "test_loss": "lower",
    "test_accuracy": "higher",
    "error": "lower",
    "gradient_norm_sq": "lower",
    "client_accuracy_mean": "higher",
    "client_accuracy_worst": "higher",
    "client_loss_mean": "lower",
    "client_loss_worst": "lower",
    "communication": "lower",
    "bytes": "lower",
    "time": "lower",
    "seconds": "lower",
    "eval_seconds": "lower",
}
"""which direction of fedsum's own metrics is better; a task states it for its own metrics. Gaps are best at zero"""

_SERVER = "server_"
"""prefix of the server's model, if the run evaluates another model"""

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


def better(metric: str, stated: Mapping[str, Better]) -> Better | None:
    """Which direction of a metric is better; None if nothing states it.

    Args:
      metric: its name in a row of metrics.
      stated: what the run's task states for its own metrics.

    >>> better("server_test_loss", {}), better("test_auc", {"test_auc": "higher"}), better("test_auc", {})
    ('lower', 'higher', None)
    """
    name = metric.removeprefix(_SERVER)
    return stated.get(name, BETTER.get(name))


def is_logarithmic(metric: str) -> bool:
    """Whether figures draw a metric on a logarithmic axis: fedsum's own losses, errors and norms."""
    return BETTER.get(metric.removeprefix(_SERVER)) == "lower"


def in_words(metric: str) -> str:
    """A metric's label in figures and tables.

    >>> in_words("test_accuracy"), in_words("client_accuracy_slow"), in_words("my_score")
    ('test accuracy', 'accuracy of slow clients', 'my score')
    """
    words = metric.replace("_", " ")
    for score in ("accuracy", "loss"):
        if metric.startswith(f"client_{score}_"):
            words = f"{score} of {words.removeprefix(f'client {score} ')} clients"
    return LABELS.get(metric, words)


def is_percent(metric: str) -> bool:
    """Whether a metric is a share that is shown in percent."""
    return metric.endswith("accuracy") or metric.startswith("client_accuracy_")
