"""Early stopping: a rule on a metric, read from a run's evaluations alone, so that a resumed run stops alike."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..base.checks import InputError, integer, nearest, real, set_fields
from ..base.metrics import Better, better
from ..base.toml_values import Table

_EXPLODED = 10.0
"""a finite train loss that ends this many times as high as it began has exploded"""


@dataclass(frozen=True)
class StopWhen:
    """Stops a run after an evaluation at which a metric is good enough, or has stopped improving.

    Args:
      metric: a column of the metrics, such as "test_accuracy".
      above: stop when the metric is above this value.
      below: stop when the metric is below this value.
      patience: stop when the best value is this many rounds old; NaN values are ignored.

    >>> rule = StopWhen("test_accuracy", above=0.9)
    >>> rule.reason([{"round": 10, "test_accuracy": 0.8}, {"round": 20, "test_accuracy": 0.91}])
    'stopped early after round 20: test_accuracy = 0.91 is above 0.9'
    """

    metric: str
    above: float | None = None
    below: float | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.metric, str):
            raise InputError("stop.metric", self.metric, "the name of a metric, such as 'test_accuracy'")
        for name in ("above", "below"):
            if getattr(self, name) is not None:
                set_fields(self, **{name: real(f"stop.{name}", getattr(self, name))})
        if self.patience is not None:
            set_fields(self, patience=integer("stop.patience", self.patience, low=1))
        if self.above is self.below is self.patience is None:
            raise InputError("stop", self.dump(), "one of above, below and patience besides the metric")

    def refuse_unknown(self, row: Mapping[str, float], stated: Mapping[str, Better]) -> None:
        """Refuses a metric that the run's evaluations do not have, and patience without a direction.

        `stated` has the directions of the task's own metrics.
        """
        if self.metric not in row:
            raise InputError(
                "stop.metric", self.metric, nearest(self.metric, [name for name in row if name != "round"])
            )
        if self.patience is not None and better(self.metric, stated) is None:
            accepted = "nothing states whether higher or lower is better; use above or below, or define a fedsum.Metric"
            raise InputError("stop.metric", self.metric, accepted)

    def reason(self, rows: Sequence[Mapping[str, float]], stated: Mapping[str, Better] | None = None) -> str:
        """Why the run stops after the last of these evaluations; empty if it goes on. Round 0 does not count."""
        values = {int(row["round"]): row[self.metric] for row in rows if row["round"] > 0}
        if not values:
            return ""
        last = max(values)
        head = f"stopped early after round {last}: {self.metric} = {values[last]:.6g}"
        if self.above is not None and values[last] > self.above:
            return f"{head} is above {self.above:g}"
        if self.below is not None and values[last] < self.below:
            return f"{head} is below {self.below:g}"
        lower = better(self.metric, stated or {}) == "lower"
        numbers = {t: value for t, value in values.items() if not math.isnan(value)} or values
        best = (min if lower else max)(numbers, key=lambda t: numbers[t])
        if self.patience is not None and last - best >= self.patience:
            return f"{head} has not improved since round {best}"
        return ""

    def dump(self) -> Table:
        """A table of TOML types; `parse_stop` is the inverse."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def parse_stop(table: Any) -> StopWhen:
    """A rule from a file: a table such as {metric = "test_accuracy", above = 0.9}."""
    if not isinstance(table, Mapping) or "metric" not in table:
        raise InputError("stop", table, 'a table such as {metric = "test_accuracy", above = 0.9}')
    names = list(StopWhen.__dataclass_fields__)
    for name, value in table.items():
        if name not in names:
            raise InputError(f"stop.{name}", value, f"no such field; {nearest(name, names)}")
    return StopWhen(**table)


def check_stop(field: str, rule: Any) -> StopWhen | None:
    if rule is not None and not isinstance(rule, StopWhen):
        raise InputError(field, rule, 'fedsum.StopWhen("test_accuracy", above=0.9), or None')
    return rule


def exploded(rows: Sequence[Mapping[str, float]]) -> str:
    """A message if the train loss is finite but far above its initial value; otherwise empty."""
    first, last = rows[0]["train_loss"], rows[-1]["train_loss"]
    if last > _EXPLODED * abs(first) and last - first > 1e-6:
        return f"its train loss rose from {first:.3g} to {last:.3g} by round {int(rows[-1]['round'])}"
    return ""
