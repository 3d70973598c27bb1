"""The numbers behind the curves: what every algorithm came to, over its seeds."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from ..base.metrics import FINAL_ROUNDS, final_value
from ..runs import Run
from .facets import FACETS, Facets, facets, ordered

# Columns of metrics.csv that say where a run is or what it cost, not how good its model is.
COSTS = ("communication", "bytes", "seconds")
_NOT_METRICS = ("round", "tau", "eval_seconds", *COSTS)
_FIRST = ("test_accuracy", "error", "train_loss")
_SERVER = "server_"


def metrics(runs: Sequence[Run]) -> list[str]:
    """What was measured of the models, the one to watch first."""
    found = dict.fromkeys(str(column) for run in runs for column in run.metrics if column not in _NOT_METRICS)
    return [name for name in _FIRST if name in found] + [name for name in found if name not in _FIRST]


def column(run: Run, name: str) -> "pd.Series[float]":
    """A metric by round done. Where an algorithm logs its server's model apart (`server_...`), the others'
    plain metric is of that very model."""
    plain = name.removeprefix(_SERVER)
    found = name if name in run.metrics else plain if plain in run.metrics else None
    if found is None:
        return pd.Series(dtype=float)
    return pd.Series(run.metrics[found].to_numpy(), index=run.metrics["round"].to_numpy()).dropna()


def final(runs: Sequence[Run], last: int = FINAL_ROUNDS) -> pd.DataFrame:
    """One row per curve: the metrics at the end, and their means over the last `last` rounds.

    Over the runs that finished. Where none did, over those that were stopped or are still running, up to where
    all of them are; `over` says how many runs were counted, `runs` how many there are. `_std` columns hold the standard
    deviation over seeds (of a sample), nothing for a single one.
    """
    groups: dict[Facets, list[Run]] = defaultdict(list)
    for run, each in zip(runs, facets(runs), strict=True):
        groups[each].append(run)
    names = metrics(runs)
    return pd.DataFrame([_row(each, groups[each], names, last) for each in ordered(groups)])


def _row(each: Facets, group: list[Run], names: list[str], last: int) -> dict[str, object]:
    counted = [run for run in group if run.state == "finished" and len(run.metrics)]
    counted = counted or _together([r for r in group if r.state not in ("diverged", "failed") and len(r.metrics)])
    row: dict[str, object] = {facet: getattr(each, facet) for facet in FACETS}
    row |= {"runs": len(group), "over": len(counted)}
    row |= {state: sum(run.state == state for run in group) for state in ("finished", "diverged")}
    row["round"] = min((int(run.metrics["round"].iloc[-1]) for run in counted), default=0)
    for name in names:
        series = [values for run in counted if len(values := column(run, name))]
        row[name], row[f"{name}_std"] = _mean([values.iloc[-1] for values in series])
        tails = [final_value(dict(zip(values.index.tolist(), values.tolist(), strict=True)), last) for values in series]
        row[f"{name}_last"], row[f"{name}_last_std"] = _mean(tails)
    for name in COSTS:
        row[name] = _mean([run.metrics[name].iloc[-1] for run in counted if name in run.metrics])[0]
    return row


def _together(runs: list[Run]) -> list[Run]:
    """Runs on their way, each up to the round that all have come to: a mean over several rounds says nothing."""
    there = min((int(run.metrics["round"].iloc[-1]) for run in runs), default=0)
    return [replace(run, rows=[row for row in run.rows if row["round"] <= there]) for run in runs]


def _mean(values: Sequence[float]) -> tuple[float, float]:
    mean = float(np.mean(values)) if values else float("nan")
    return mean, float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
