"""Which settings of a sweep did best."""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.checks import InputError
from .folder import METRICS
from .recipes import Table
from .standing import Standing, rows
from .sweep import Planned

SEED = "seed"
_LAST = 50


@dataclass(frozen=True)
class Best:
    """What a grid search found."""

    name: str
    settings: dict[str, Any]
    """the swept ones, but for the seed"""
    table: Table
    """all settings of one of its runs"""
    value: float


def best(runs: Sequence[Planned], stands: Mapping[str, Standing], by: str) -> Best:
    """The settings with the best metric: the highest accuracy, or the lowest of anything else.

    It is the mean over the last 50 rounds, since a single one says little where accuracy goes up and down, and over
    seeds. Settings with which a run did not finish are out.
    """
    groups: dict[str, list[Planned]] = defaultdict(list)
    for run in runs:
        label = f"seed={run.chosen.get(SEED)}"
        groups[",".join(part for part in run.name.split(",") if part != label)].append(run)
    found = {}
    for name, group in groups.items():
        ends = [_end(run.folder, by) for run in group if stands[run.name].state == "finished"]
        if len(ends) == len(group) and not any(map(math.isnan, ends)):
            found[name] = statistics.fmean(ends)
    if not found:
        known = sorted({name for run in runs for name in stands[run.name].last})
        raise InputError("by", by, f"no finished run has this metric; known: {', '.join(known) or 'none'}")
    name = (max if by.endswith("accuracy") else min)(found, key=lambda name: found[name])
    one = groups[name][0]
    return Best(name, {key: value for key, value in one.chosen.items() if key != SEED}, one.table, found[name])


def _end(folder: Path, by: str) -> float:
    """A metric's mean over a run's last rounds."""
    values = {row["round"]: row[by] for row in rows(folder / METRICS) if by in row}
    return statistics.fmean([values[t] for t in values if t > max(values) - _LAST]) if values else math.nan
