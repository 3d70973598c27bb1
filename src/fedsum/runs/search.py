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
SEEDS = (SEED, f"task.{SEED}")
"""swept settings over which means are taken"""
_PROBLEM = ("task", "schedule", "devices")
"""parts of a sweep that are not tuned: an easier problem is no better setting"""


@dataclass(frozen=True)
class Best:
    """The best settings of a sweep, or of one combination of algorithm, task and schedule."""

    algorithm: str
    """its label"""
    name: str
    """the name of the runs with these settings, without seeds"""
    settings: dict[str, Any]
    """the swept settings, without seeds"""
    labels: dict[str, str]
    """the parts of `name`, by setting"""
    table: Table
    """all settings of the first of these runs"""
    value: float
    """the mean over seeds of the final value of the metric"""


@dataclass(frozen=True)
class Combination:
    """An algorithm, a task and a schedule of a sweep. Each has its own best settings."""

    algorithm: str
    """its label; empty if the best of all algorithms is selected"""
    problem: tuple[tuple[str, str], ...]
    """(setting, label) of the swept settings of task, schedule and devices that take several values"""


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
            accepted = "no setting has finished all its runs with a value of this metric; it may be NaN"
            raise InputError("by", by, accepted)
    if winner is None:
        raise InputError("by", by, f"no run has this metric; known: {', '.join(metrics) or 'none'}")
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


def best_per_combination(
    planned: Sequence[PlannedRun],
    runs: Mapping[str, Run],
    by: str,
    better: Better | None = None,
    *,
    overall: bool = False,
) -> dict[Combination, Best | None]:
    """`best` for each algorithm, task and schedule; None if none of the settings has finished runs only.

    With `overall`, the best of all algorithms for each task and schedule.
    """
    best(planned, runs, by, better)  # refuses a metric that no run has
    better = check_direction(by, directions(runs.values()), better)
    parts = [_parts(plan) for plan in planned]
    first: dict[tuple[str, str], str] = {}
    for plan, labels in zip(planned, parts, strict=True):
        for key, settings in _settings(plan).items():
            # A long label is cut and ends in a digest, also of the seed: all seeds get the label of the first.
            labels[key] = first.setdefault((key, _as_text(settings)), labels[key])
    swept = [key for key in parts[0] if key.partition(".")[0] in _PROBLEM and len({p[key] for p in parts}) > 1]
    groups: dict[Combination, list[PlannedRun]] = defaultdict(list)
    for plan, labels in zip(planned, parts, strict=True):
        algorithm = "" if overall else plan.spec.algorithm.label
        groups[Combination(algorithm, tuple((key, labels[key]) for key in swept))].append(plan)
    return {combination: _best_or_none(group, runs, by, better) for combination, group in groups.items()}


def _best_or_none(planned: Sequence[PlannedRun], runs: Mapping[str, Run], by: str, better: Better) -> Best | None:
    groups: dict[str, list[PlannedRun]] = defaultdict(list)
    for plan in planned:
        groups[_as_text(_settings(plan))].append(plan)
    values = {}
    for key, group in groups.items():
        final_values = [_final(runs[plan.name], by) for plan in group if runs[plan.name].state == "finished"]
        if len(final_values) == len(group) and not any(map(math.isnan, final_values)):
            values[key] = statistics.fmean(final_values)
    if not values:
        return None
    winner = (max if better == "higher" else min)(values, key=lambda key: values[key])
    first, *others = groups[winner]
    settings = _settings(first) | {
        # A table keeps the seed that all these runs have.
        key: first.chosen[key]
        for key in _settings(first)
        if all(plan.chosen[key] == first.chosen[key] for plan in others)
    }
    labels = _parts(first)
    name = ",".join(labels.values())
    return Best(first.spec.algorithm.label, name, settings, labels, first.table, values[winner])


def _settings(plan: PlannedRun) -> dict[str, Any]:
    """The swept settings, without seeds."""
    return {key: _without_seed(key, value) for key, value in plan.chosen.items() if key not in SEEDS}


def _as_text(settings: Any) -> str:
    return json.dumps(settings, sort_keys=True, default=str)


def _without_seed(key: str, value: Any) -> Any:
    if key == "task" and isinstance(value, Mapping):
        return {name: field for name, field in value.items() if name != SEED}
    return value


def _parts(plan: PlannedRun) -> dict[str, str]:
    """The parts of a run's name by setting, without seeds."""
    parts = {key: part for key, part in plan.parts.items() if key not in SEEDS}
    task = plan.chosen.get("task")
    if isinstance(task, Mapping):
        parts["task"] = parts["task"].replace(f"-{SEED}={task.get(SEED)}", "")
    return parts


def _final(run: Run, by: str) -> float:
    return final_value({int(row["round"]): row[by] for row in run.rows if by in row})
