"""Which columns of metrics.csv are metrics, and the final values of every curve over its seeds."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from ..base.metrics import final_value
from ..runs import Run
from .facets import FACETS, Facets, facets, ordered

# Columns of metrics.csv that are progress or cost, not quality of the model.
COSTS = ("communication", "bytes", "seconds")
_SIMULATED = "time"
_NOT_METRICS = ("round", "tau", "eval_seconds", "epoch", "drift", "late", _SIMULATED, *COSTS)
_MAIN_METRICS = ("test_accuracy", "error", "train_loss")
_SERVER = "server_"


def cost_names(runs: Sequence[Run]) -> tuple[str, ...]:
    """The costs of these runs; simulated time only if a run has devices."""
    return (*COSTS, _SIMULATED) if any(_SIMULATED in run.metrics for run in runs) else COSTS


def metric_names(runs: Sequence[Run]) -> list[str]:
    """The names of the metrics that evaluate the model, the main metrics first.

    >>> import fedsum, tempfile
    >>> task, options = fedsum.tasks.Quadratic.random(4, 2, seed=0), {"rounds": 10, "local_steps": 1, "eta_l": 0.1}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = fedsum.simulate(task, fedsum.FedSUM(), fedsum.Uniform(4, 2), folder=f"{folder}/run", **options)
    ...     metric_names(fedsum.read_runs(folder))
    ['error', 'train_loss', 'gradient_norm_sq']
    """
    names = dict.fromkeys(str(column) for run in runs for column in run.metrics if column not in _NOT_METRICS)
    return [name for name in _MAIN_METRICS if name in names] + [name for name in names if name not in _MAIN_METRICS]


def column(run: Run, name: str) -> "pd.Series[float]":
    """A metric by the number of rounds done; empty if the run does not have it.

    For a `server_...` metric, a run without that column uses the column without the prefix: its algorithm evaluates
    the server's model.
    """
    plain = name.removeprefix(_SERVER)
    source = name if name in run.metrics else plain if plain in run.metrics else None
    if source is None:
        return pd.Series(dtype=float)
    return pd.Series(run.metrics[source].to_numpy(), index=run.metrics["round"].to_numpy()).dropna()


def final_table(runs: Sequence[Run], last: int | None = None) -> pd.DataFrame:
    """One row per curve: the metrics at the end, and in `_last` columns their means over the last `last` rounds.

    Without `last`, each mean is over the `final_window` of its run.

    Values are means over the finished runs. If no run finished, they are means over the stopped and running runs, up to
    the last round that all of them have reached. `runs` is the number of runs, `over` the number of runs in the mean.
    `_std` columns are sample standard deviations over seeds, NaN for a single seed.

    >>> import fedsum, tempfile
    >>> task, options = fedsum.tasks.Quadratic.random(4, 2, seed=0), {"rounds": 10, "local_steps": 1, "eta_l": 0.1}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for algorithm in (fedsum.FedSUM(), fedsum.FedAvg()):
    ...         run = f"{folder}/{algorithm.name}"
    ...         _ = fedsum.simulate(task, algorithm, fedsum.Uniform(4, 2), folder=run, **options)
    ...     final_table(fedsum.read_runs(folder))[["algorithm", "runs", "round"]]
      algorithm  runs  round
    0    FedSUM     1     10
    1    FedAvg     1     10
    """
    groups: dict[Facets, list[Run]] = defaultdict(list)
    for run, curve in zip(runs, facets(runs), strict=True):
        groups[curve].append(run)
    names, costs = metric_names(runs), cost_names(runs)
    return pd.DataFrame([_row(curve, groups[curve], names, costs, last) for curve in ordered(groups)])


def _row(
    curve: Facets, group: list[Run], names: list[str], costs: Sequence[str], last: int | None
) -> dict[str, object]:
    counted = [run for run in group if run.state == "finished" and len(run.metrics)]
    counted = counted or _up_to_common_round(
        [run for run in group if run.state not in ("diverged", "failed") and len(run.metrics)]
    )
    row: dict[str, object] = {facet: getattr(curve, facet) for facet in FACETS}
    row |= {"runs": len(group), "over": len(counted)}
    row |= {state: sum(run.state == state for run in group) for state in ("finished", "diverged")}
    row["round"] = min((int(run.metrics["round"].iloc[-1]) for run in counted), default=0)
    for name in names:
        series = [values for run in counted if len(values := column(run, name))]
        row[name], row[f"{name}_std"] = _mean([values.iloc[-1] for values in series])
        final_values = [
            final_value(dict(zip(values.index.tolist(), values.tolist(), strict=True)), last) for values in series
        ]
        row[f"{name}_last"], row[f"{name}_last_std"] = _mean(final_values)
    for name in costs:
        row[name] = _mean([run.metrics[name].iloc[-1] for run in counted if name in run.metrics])[0]
    return row


def _up_to_common_round(runs: list[Run]) -> list[Run]:
    """The runs, cut after the last round that all of them have reached, so that a mean compares equal rounds."""
    common_round = min((int(run.metrics["round"].iloc[-1]) for run in runs), default=0)
    return [replace(run, rows=[row for row in run.rows if row["round"] <= common_round]) for run in runs]


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the sample standard deviation; NaN if there are too few values."""
    mean = float(np.mean(values)) if values else float("nan")
    return mean, float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
