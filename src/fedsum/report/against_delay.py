"""Theory and measurement: the errors of a sweep's runs against the delays of their participation patterns.

The error is the mean of ||grad f||^2 over all rounds, as in Theorem 1. a_{i,t} is the last round up to t in which
client i was active. tau_t = max_i (t - a_{i,t}) is the longest any client has been away. tau_avg and tau_max are the
mean and the maximum of tau_t over the rounds.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..base.checks import InputError
from ..figures import COLOURS
from ..participation import DelayMeter, Schedule
from ..runs import Run
from ..spec import ScheduleSpec, code_confirmed_by
from .facets import facets, ordered
from .table import column

ERROR = "gradient_norm_sq"
_OFFSETS = [(r * x, r * y) for r in (1, 2, 3) for x, y in ((9, 5), (-9, 5), (9, -5), (-9, -5), (0, 10), (0, -10))]
"""where the number of a point may be, in typographic points from it"""
_TEXT_SIZE = 9, 7
_DELAYS = {"tau_avg": "tau_avg", "mean_delay": "mean delay"}


def delays(runs: Sequence[Run]) -> pd.DataFrame:
    """A table of delays and errors, one row per participation pattern.

    `tau_avg` and `tau_max` measure, in each round, the client that has been away longest. `mean_delay` averages over
    all clients: it is the mean of t - a_{i,t} over i and t. Every column is the mean over the seeds that finished;
    `lowest` and `highest` are the extremes of the error. `late` is the error over the second half of the rounds.
    """
    groups = defaultdict(list)
    for run, curve in zip(runs, facets(runs), strict=True):
        errors = column(run, ERROR)
        if run.state != "finished" or errors.empty:
            continue
        # Use evenly spaced rounds: with `eval_last`, each of the last rounds was evaluated too.
        errors = errors[errors.index % run.config["eval_every"] == 0]
        late = errors[errors.index >= run.config["rounds"] / 2]
        clients = run.config["schedule"]["n"]
        with code_confirmed_by(lambda name: False):  # the runs may be from elsewhere
            schedule = ScheduleSpec.parse(run.config["schedule"], clients).make(clients)
        groups[curve].append((*_delays(schedule, run.config["rounds"], run.config["seed"]), errors.mean(), late.mean()))
    if not groups:
        raise InputError(
            "runs", len(runs), f"at least one finished run with the metric {ERROR} ([task] gradient_norm = true)"
        )
    rows = []
    for curve in ordered(groups):
        by_seed = pd.DataFrame(groups[curve], columns=["tau_avg", "tau_max", "mean_delay", "error", "late"])
        spread = {"lowest": by_seed["error"].min(), "highest": by_seed["error"].max(), "seeds": len(by_seed)}
        rows.append({"schedule": curve.schedule} | by_seed.mean().to_dict() | spread)
    return pd.DataFrame(rows)


def _delays(schedule: Schedule, rounds: int, seed: int) -> tuple[float, int, float]:
    """tau_avg, tau_max and the mean delay of a schedule."""
    meter, delay = DelayMeter(schedule.n), 0.0
    for t in range(rounds):
        meter.update(schedule.active(seed, t))
        delay += float((t - meter.last).mean())
    measured = meter.result()
    return measured.avg, measured.max, delay / rounds


def rank_correlation(table: pd.DataFrame, delay: str = "tau_avg", error: str = "error") -> float:
    """Spearman's rank correlation of delay and error over the patterns; 1 if both have the same order.

    >>> rank_correlation(pd.DataFrame({"tau_avg": [0, 3, 9], "error": [0.1, 0.2, 0.9]}))
    1.0
    """
    ranks = table[[delay, error]].rank()
    return round(float(np.corrcoef(ranks[delay], ranks[error])[0, 1]), 12)


def line(table: pd.DataFrame, delay: str = "tau_avg") -> tuple[float, float]:
    """a and b of the least-squares line error = a + b (1 + delay)."""
    b, a = np.polyfit(1 + table[delay], table["error"], 1)
    return float(a), float(b)


def against_delay(table: pd.DataFrame, title: str = "") -> Figure:
    """A figure of the patterns' errors against 1 + tau_avg and 1 + mean delay, with least-squares lines.

    Args:
      table: from `delays`.
      title: the figure's title, above both panels.
    """
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (delay, delay_label) in zip(axes, _DELAYS.items(), strict=True):
        x, (a, b) = 1 + table[delay].to_numpy(), line(table, delay)
        spread = np.abs(table[["lowest", "highest"]].to_numpy().T - table["error"].to_numpy())
        ax.errorbar(x, table["error"], yerr=spread, fmt="none", ecolor=COLOURS[7], linewidth=1, zorder=1)
        for place, (name, error) in enumerate(zip(table["schedule"], table["error"], strict=True)):
            colour, marker = COLOURS[place % len(COLOURS)], "os^Dv"[place // len(COLOURS) % 5]
            label = f"{place + 1}  {name}" if ax is axes[0] else None
            ax.plot(x[place], error, marker, color=colour, markersize=6, label=label)
        line_x = np.geomspace(x.min(), x.max(), 100)
        ax.plot(line_x, a + b * line_x, color=COLOURS[6], linewidth=1, linestyle="--")
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set_xlabel(f"1 + {delay_label}")
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_title(
            f"{a:.2g} + {b:.2g} (1 + {delay_label}), rank correlation {rank_correlation(table, delay):.2f}",
            fontsize=8,
        )
    axes[0].set_ylabel("error: mean squared gradient norm")
    figure.legend(frameon=False, fontsize=7, loc="outside right center")
    if title:
        figure.suptitle(title, fontsize=10)
    figure.draw_without_rendering()  # it places the axes
    for ax, delay in zip(axes, _DELAYS, strict=True):
        _number_points(ax, figure.dpi / 72, np.column_stack([1 + table[delay], table["error"]]))
    return figure


def _number_points(ax: Axes, pixels: float, points: NDArray[np.float64]) -> None:
    """Writes its number beside each point, at the first of _OFFSETS that is clear of all points and numbers.

    Args:
      ax: axes that have their place in the figure.
      pixels: pixels per typographic point.
      points: [n, 2], in the coordinates of the data.
    """
    centres = ax.transData.transform(points) / pixels
    taken = list(centres)
    for number, (point, centre) in enumerate(zip(points, centres, strict=True), start=1):
        clear = (offset for offset in _OFFSETS if (abs(centre + offset - taken) >= _TEXT_SIZE).any(1).all())
        offset = next(clear, _OFFSETS[0])
        taken.append(centre + offset)
        line = {"arrowstyle": "-", "color": "0.6", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7, "arrowprops": line}
        ax.annotate(str(number), tuple(point), xytext=offset, textcoords="offset points", **style)
