"""Theory beside measurement: what the runs of a sweep came to, against the delay of their patterns."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..base.checks import InputError
from ..figures import COLOURS
from ..participation import DelayMeter, Schedule
from ..runs import Run
from ..spec import ScheduleSpec
from .facets import facets, ordered
from .table import column

ERROR = "gradient_norm_sq"
_DELAYS = {"tau_avg": "tau_avg", "mean_delay": "mean delay"}


def delays(runs: Sequence[Run]) -> pd.DataFrame:
    """A row for each pattern: its delays, and the mean of ||grad f||^2 over all rounds, as in Theorem 1.

    `tau_avg` and `tau_max` are the paper's, of the client that was away longest; `mean_delay` is that of all
    clients alike, the mean of t - a_{i,t} over i and t. Over the seeds that finished: the means, and of the error
    also the lowest and the highest. `late` is the error over the second half.
    """
    groups = defaultdict(list)
    for run, each in zip(runs, facets(runs), strict=True):
        errors = column(run, ERROR)
        if run.state != "finished" or errors.empty:
            continue
        # Evenly over the run: its last rounds may have been evaluated one by one.
        errors = errors[errors.index % run.config["eval_every"] == 0]
        late = errors[errors.index >= run.config["rounds"] / 2]
        clients = run.config["task"]["clients"]
        schedule = ScheduleSpec.parse(run.config["schedule"], clients).make(clients)
        groups[each].append(
            (*_measured(schedule, run.config["rounds"], run.config["seed"]), errors.mean(), late.mean())
        )
    if not groups:
        raise InputError("runs", len(runs), f"some that finished and measured {ERROR}: [task] gradient_norm = true")
    rows = []
    for each in ordered(groups):
        found = pd.DataFrame(groups[each], columns=["tau_avg", "tau_max", "mean_delay", "error", "late"])
        spread = {"lowest": found["error"].min(), "highest": found["error"].max(), "seeds": len(found)}
        rows.append({"schedule": each.schedule} | found.mean().to_dict() | spread)
    return pd.DataFrame(rows)


def _measured(schedule: Schedule, rounds: int, seed: int) -> tuple[float, int, float]:
    meter, delay = DelayMeter(schedule.n), 0.0
    for t in range(rounds):
        meter.update(schedule.active(seed, t))
        delay += float((t - meter.last).mean())
    found = meter.result()
    return found.avg, found.max, delay / rounds


def rank_correlation(table: pd.DataFrame, delay: str = "tau_avg", error: str = "error") -> float:
    """Spearman's: 1 where the delay puts the patterns in the order of their errors.

    >>> rank_correlation(pd.DataFrame({"tau_avg": [0, 3, 9], "error": [0.1, 0.2, 0.9]}))
    1.0
    """
    ranks = table[[delay, error]].rank()
    return round(float(np.corrcoef(ranks[delay], ranks[error])[0, 1]), 12)


def line(table: pd.DataFrame, delay: str = "tau_avg") -> tuple[float, float]:
    """The least-squares error = a + b (1 + delay)."""
    b, a = np.polyfit(1 + table[delay], table["error"], 1)
    return float(a), float(b)


def against_delay(table: pd.DataFrame, title: str = "") -> Figure:
    """The patterns' errors against 1 + tau_avg and 1 + the mean delay, with their lines."""
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (delay, told) in zip(axes, _DELAYS.items(), strict=True):
        x, (a, b) = 1 + table[delay].to_numpy(), line(table, delay)
        spread = np.abs(table[["lowest", "highest"]].to_numpy().T - table["error"].to_numpy())
        ax.errorbar(x, table["error"], yerr=spread, fmt="none", ecolor=COLOURS[7], linewidth=1, zorder=1)
        for place, (name, error) in enumerate(zip(table["schedule"], table["error"], strict=True)):
            colour, marker = COLOURS[place % len(COLOURS)], "os^Dv"[place // len(COLOURS) % 5]
            label = f"{place + 1}  {name}" if ax is axes[0] else None
            ax.plot(x[place], error, marker, color=colour, markersize=6, label=label)
            ax.annotate(str(place + 1), (x[place], error), textcoords="offset points", xytext=(5, 4), fontsize=7)
        along = np.geomspace(x.min(), x.max(), 100)
        ax.plot(along, a + b * along, color=COLOURS[6], linewidth=1, linestyle="--")
        ax.set_xscale("log")
        ax.set_xlabel(f"1 + {told}")
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_title(
            f"{a:.2g} + {b:.2g} (1 + {told}), rank correlation {rank_correlation(table, delay):.2f}", fontsize=8
        )
    axes[0].set_ylabel("mean of ||grad f||^2 over all rounds")
    figure.legend(frameon=False, fontsize=7, loc="outside right center")
    if title:
        figure.suptitle(title, fontsize=10)
    return figure
