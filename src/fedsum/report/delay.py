"""Theory beside measurement: what the runs of a sweep came to, against the delay of their patterns."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..checks import InputError
from ..runs.recipes import to_schedule
from .collect import Collected
from .facets import facets, ordered
from .figures import COLOURS
from .participation import measure
from .table import column

ERROR = "gradient_norm_sq"


def delays(runs: Sequence[Collected]) -> pd.DataFrame:
    """A row for each pattern: tau_avg and tau_max, and the mean of ||grad f||^2 over all rounds, as in Theorem 1.

    Over the seeds that finished: the means, and of the error also the lowest and the highest. `late` is the mean
    over the second half.
    """
    groups = defaultdict(list)
    for run, each in zip(runs, facets(runs), strict=True):
        errors = column(run, ERROR)
        if run.state != "finished" or errors.empty:
            continue
        # Evenly over the run: its last rounds may have been evaluated one by one.
        errors = errors[errors.index % run.config["eval_every"] == 0]
        schedule = to_schedule(run.config["schedule"], run.config["task"]["clients"])
        found = measure(schedule, range(run.config["rounds"]), run.config["seed"], most_cells=(1, 1)).delays
        late = errors[errors.index >= run.config["rounds"] / 2]
        groups[each].append((found.avg, found.max, errors.mean(), late.mean()))
    if not groups:
        raise InputError("runs", len(runs), f"some that finished and measured {ERROR}: [task] gradient_norm = true")
    rows = []
    for each in ordered(groups):
        avg, most, error, late = np.array(groups[each]).T
        row = {"schedule": each.schedule, "tau_avg": avg.mean(), "tau_max": most.mean(), "error": error.mean()}
        row |= {"lowest": error.min(), "highest": error.max(), "late": late.mean(), "seeds": len(error)}
        rows.append(row)
    return pd.DataFrame(rows)


def rank_correlation(table: pd.DataFrame, delay: str = "tau_avg", error: str = "error") -> float:
    """Spearman's: 1 where the delay puts the patterns in the order of their errors.

    >>> rank_correlation(pd.DataFrame({"tau_avg": [0, 3, 9], "error": [0.1, 0.2, 0.9]}))
    1.0
    """
    ranks = table[[delay, error]].rank()
    return round(float(np.corrcoef(ranks[delay], ranks[error])[0, 1]), 12)


def line(table: pd.DataFrame) -> tuple[float, float]:
    """The least-squares error = a + b (1 + tau_avg)."""
    b, a = np.polyfit(1 + table["tau_avg"], table["error"], 1)
    return float(a), float(b)


def against_delay(table: pd.DataFrame, title: str = "") -> Figure:
    """The patterns' errors against 1 + tau_avg, with the line; numbers lead to the names beside."""
    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    ax = figure.subplots()
    x, (a, b) = 1 + table["tau_avg"].to_numpy(), line(table)
    spread = np.abs(table[["lowest", "highest"]].to_numpy().T - table["error"].to_numpy())
    ax.errorbar(x, table["error"], yerr=spread, fmt="none", ecolor=COLOURS[7], linewidth=1, zorder=1)
    for place, (name, error) in enumerate(zip(table["schedule"], table["error"], strict=True)):
        colour, marker = COLOURS[place % len(COLOURS)], "os^Dv"[place // len(COLOURS) % 5]
        ax.plot(x[place], error, marker, color=colour, markersize=6, label=f"{place + 1}  {name}")
        ax.annotate(str(place + 1), (x[place], error), textcoords="offset points", xytext=(5, 4), fontsize=7)
    ends = np.geomspace(x.min(), x.max(), 100)
    told = f"{a:.3g} + {b:.2g} (1 + tau_avg)"
    ax.plot(ends, a + b * ends, color=COLOURS[6], linewidth=1, linestyle="--", label=told)
    ax.set_xscale("log")
    ax.set_xlabel("1 + tau_avg")
    ax.set_ylabel("mean of ||grad f||^2 over all rounds")
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(f"rank correlation {rank_correlation(table):.2f}", fontsize=8.5)
    figure.legend(frameon=False, fontsize=7, loc="outside right center")
    if title:
        figure.suptitle(title, fontsize=10)
    return figure
