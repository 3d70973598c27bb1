"""Active clients per round, and their delays.

tau_t: the longest any client has been away, in rounds, as of round t; tau_avg and tau_max: its mean and maximum over t.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from .style import COLOURS, label_axes, wrapped

_MAX_NAMES, _MAX_NAME = 30, 16
"""names of clients beside a raster, and characters of one"""


@dataclass(frozen=True)
class Participation:
    """What a figure shows of a schedule.

    >>> int(Participation(np.eye(2), gaps=np.array([1, 2]), tau=np.array([1, 1])).tau.max())
    1
    """

    raster: NDArray[np.float64]
    """per cell, the share of its (client, round) pairs that were active; clients down, rounds across"""
    gaps: NDArray[np.int64]
    """longest absence per client, in rounds"""
    tau: NDArray[np.int64]
    """tau_t per round"""


def participation_figure(
    measured: Participation,
    *,
    fitted: tuple[str, Participation] | None = None,
    tau_max_bound: float | None = None,
    title: str = "",
    names: Sequence[str] | None = None,
) -> Figure:
    """Participation as a raster, tau_t over rounds, and the longest absence per client.

    Args:
      measured: the participation to draw.
      fitted: the name and the participation of a schedule that imitates it, for a second raster and a second curve.
      tau_max_bound: a bound on E[tau_max], if a lemma gives one.
      title: the figure's title, above all panels.
      names: the clients' names; with many clients, some of them are shown.
    """
    rows = [("active clients", measured, names)]
    if fitted is not None:  # its clients are not those of the log, and have no names
        rows.append((f"active clients of the fitted schedule, {fitted[0]}", fitted[1], None))
    figure = Figure(figsize=(9.0, 2.6 + 3.9 * len(rows)), layout="constrained")
    figure.suptitle(wrapped(title, figure.get_figwidth()))
    grid = figure.add_gridspec(len(rows) + 1, 2, height_ratios=(*(3,) * len(rows), 2), width_ratios=(5, 1))
    widest = max(int(shown.gaps.max()) for _, shown, _ in rows)
    for row, (head, shown, shown_names) in enumerate(rows):
        active, absence = figure.add_subplot(grid[row, 0]), figure.add_subplot(grid[row, 1])
        _draw_active(active, shown, head, shown_names)
        _draw_absence(absence, shown.gaps, widest)
    tau = measured.tau
    delay = figure.add_subplot(grid[-1, 0])
    average, longest = float(np.mean(tau)), int(np.max(tau))
    whose = "" if fitted is None else "log: "
    delay.plot(np.arange(len(tau)), tau, color=COLOURS[0], linewidth=1.0, label=rf"{whose}$\tau_t$")
    delay.axhline(average, color=COLOURS[2], linestyle="--", label=rf"{whose}$\tau_{{avg}}$ = {average:.4g}")
    delay.axhline(longest, color=COLOURS[1], linestyle=":", label=rf"{whose}$\tau_{{max}}$ = {longest}")
    if fitted is not None:
        name, tau = fitted[0], fitted[1].tau
        label = f"{name}: $\\tau_t$\n(avg {np.mean(tau):.4g}, max {np.max(tau)})"
        delay.plot(np.arange(len(tau)), tau, color=COLOURS[3], linewidth=1.0, label=label)
    if tau_max_bound is not None:  # as text, because the bound is usually far above the measured delays
        delay.plot([], [], " ", label=rf"lemma: $E[\tau_{{max}}] \leq$ {tau_max_bound:.4g}")
    delay.set_xlim(-0.5, len(tau) - 0.5)
    delay.set_ylim(bottom=0)
    label_axes(delay, "round", "delay in rounds")
    legend = figure.add_subplot(grid[-1, 1])
    legend.axis("off")
    legend.legend(*delay.get_legend_handles_labels(), frameon=False, loc="upper center")
    return figure


def _draw_active(active: Axes, shown: Participation, title: str, names: Sequence[str] | None) -> None:
    n, rounds = len(shown.gaps), len(shown.tau)
    active.imshow(
        shown.raster,
        aspect="auto",
        interpolation="nearest",
        cmap="Blues",
        vmin=0,
        extent=(-0.5, rounds - 0.5, n - 0.5, -0.5),
    )
    label_axes(active, "", "client")
    if names is not None:
        places = np.unique(np.linspace(0, n - 1, min(n, _MAX_NAMES)).astype(int))
        active.set_yticks(places, [names[i][:_MAX_NAME] for i in places], fontsize="x-small", parse_math=False)
    active.set_title(title, fontsize="medium")


def _draw_absence(absence: Axes, gaps: NDArray[np.int64], widest: int) -> None:
    """`widest`: the longest absence in the figure, so that its panels have one scale."""
    n = len(gaps)
    absence.plot(gaps, np.arange(n), ".", color=COLOURS[1], markersize=3)
    absence.set_ylim(n - 0.5, -0.5)
    absence.tick_params(labelleft=False)
    absence.set_xlim(0, 1.05 * max(1, widest))
    label_axes(absence, "longest absence", "")
