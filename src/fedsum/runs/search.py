"""Selection of the best settings of a sweep."""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.checks import InputError
from ..base.metrics import final_value, smaller_is_better
from ..base.toml_values import Table
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


def best(planned: Sequence[PlannedRun], runs: Mapping[str, Run], by: str) -> Best:
    """The settings with the best final value of a metric: the highest accuracy, or the lowest of anything else.

    The value is the mean over seeds. Settings with an unfinished run are excluded.
    """
    winner = _best_or_none(planned, runs, by)
    if winner is None:
        metrics = sorted({name for run in runs.values() for name in run.last})
        raise InputError("by", by, f"no finished run has this metric; known: {', '.join(metrics) or 'none'}")
    return winner


def best_per_algorithm(planned: Sequence[PlannedRun], runs: Mapping[str, Run], by: str) -> dict[str, Best | None]:
    """`best` among the runs of each algorithm, by label; None if none of its settings has finished runs only."""
    best(planned, runs, by)  # refuses a metric that no run has
    groups: dict[str, list[PlannedRun]] = defaultdict(list)
    for plan in planned:
        groups[plan.spec.algorithm.label].append(plan)
    return {label: _best_or_none(group, runs, by) for label, group in groups.items()}


def _best_or_none(planned: Sequence[PlannedRun], runs: Mapping[str, Run], by: str) -> Best | None:
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
    winner = (min if smaller_is_better(by) else max)(values, key=lambda settings: values[settings])
    first = groups[winner][0]
    seed = f"{SEED}={first.chosen.get(SEED)}"
    name = ",".join(part for part in first.name.split(",") if part != seed)
    return Best(first.spec.algorithm.label, name, _without_seed(first.chosen), first.table, values[winner])


def _without_seed(chosen: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in chosen.items() if key != SEED}


def _final(run: Run, by: str) -> float:
    return final_value({int(row["round"]): row[by] for row in run.rows if by in row})
