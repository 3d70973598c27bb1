"""Selection of the best settings of a sweep."""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.checks import InputError
from ..base.metrics import Better, final_value
from ..base.metrics import better as direction
from ..base.toml_values import Table
from .directions import directions
from .run_reader import Run
from .sweep import PlannedRun

SEED = "seed"


@dataclass(frozen=True)
class Best:
    """The best settings of a sweep."""

    algorithm: str
    """its label"""
    name: str
    """the name of the runs with these settings, without the seed"""
    settings: dict[str, Any]
    """the swept settings, without the seed"""
    table: Table
    """all settings of the first of these runs"""
    value: float
    """the mean over seeds of the final value of the metric"""


def best(planned: Sequence[PlannedRun], runs: Mapping[str, Run], by: str, better: Better | None = None) -> Best:
    """The settings with the best final value of a metric, the mean over seeds.

    Settings with an unfinished run are excluded.

    Args:
      planned: the runs of a sweep.
      runs: the same runs as read, by name.
      by: the metric.
      better: its direction, for a metric whose direction neither fedsum nor the runs state.
    """
    metrics, winner = sorted({name for run in runs.values() for name in run.last}), None
    if by in metrics:
        winner = _best_or_none(planned, runs, by, check_direction(by, directions(runs.values()), better))
    if winner is None:
        raise InputError("by", by, f"no finished run has this metric; known: {', '.join(metrics) or 'none'}")
    return winner


def check_direction(by: str, stated: Mapping[str, Better], better: Better | None) -> Better:
    """The direction of the metric `by`; refuses one that nothing states, and a `better` that contradicts."""
    known = direction(by, stated)
    if known is None:
        if better is None:
            accepted = "nothing states whether higher or lower is better: add --better higher or --better lower"
            raise InputError("by", by, f"{accepted}, or define the metric with fedsum.Metric")
        return better
    if better not in (None, known):
        raise InputError("better", better, f"leave it out: {by} is better if {known}")
    return known


def best_per_algorithm(
    planned: Sequence[PlannedRun], runs: Mapping[str, Run], by: str, better: Better | None = None
) -> dict[str, Best | None]:
    """`best` among the runs of each algorithm, by label; None if none of its settings has finished runs only."""
    best(planned, runs, by, better)  # refuses a metric that no run has
    better = check_direction(by, directions(runs.values()), better)
    groups: dict[str, list[PlannedRun]] = defaultdict(list)
    for plan in planned:
        groups[plan.spec.algorithm.label].append(plan)
    return {label: _best_or_none(group, runs, by, better) for label, group in groups.items()}


def _best_or_none(planned: Sequence[PlannedRun], runs: Mapping[str, Run], by: str, better: Better) -> Best | None:
    groups: dict[str, list[PlannedRun]] = defaultdict(list)
    for plan in planned:
        groups[json.dumps(_without_seed(plan.chosen), sort_keys=True, default=str)].append(plan)
    values = {}
    for settings, group in groups.items():
        final_values = [_final(runs[plan.name], by) for plan in group if runs[plan.name].state == "finished"]
        if len(final_values) == len(group) and not any(map(math.isnan, final_values)):
            values[settings] = statistics.fmean(final_values)
    if not values:
        return None
    winner = (max if better == "higher" else min)(values, key=lambda settings: values[settings])
    first = groups[winner][0]
    seed = f"{SEED}={first.chosen.get(SEED)}"
    name = ",".join(part for part in first.name.split(",") if part != seed)
    return Best(first.spec.algorithm.label, name, _without_seed(first.chosen), first.table, values[winner])


def _without_seed(chosen: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in chosen.items() if key != SEED}


def _final(run: Run, by: str) -> float:
    return final_value({int(row["round"]): row[by] for row in run.rows if by in row})
