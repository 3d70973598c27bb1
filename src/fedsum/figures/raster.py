"""Active clients per round, and their delays.

tau_t: the longest any client has been away, in rounds, as of round t; tau_avg and tau_max: its mean and maximum over t.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from .style import COLOURS, label_axes, wrapped

_MAX_NAMES, _MAX_NAME = 30, 16
"""names of clients beside a raster, and characters of one"""


def participation_figure(
    raster: NDArray[np.float64],
    gaps: NDArray[np.int64],
    tau: NDArray[np.int64],
    *,
    tau_max_bound: float | None = None,
    title: str = "",
    names: Sequence[str] | None = None,
) -> Figure:
    """Participation as a raster, tau_t over rounds, and the longest absence per client.

    Args:
      raster: per cell, the share of its (client, round) pairs that were active; clients down, rounds across.
      gaps: longest absence per client, in rounds.
      tau: tau_t per round.
      tau_max_bound: a bound on E[tau_max], if a lemma gives one.
      title: the figure's title, above all panels.
      names: the clients' names; with many clients, some of them are shown.
    """
    n, rounds = len(gaps), len(tau)
    figure = Figure(figsize=(9.0, 6.5), layout="constrained")
    figure.suptitle(wrapped(title, figure.get_figwidth()))
    grid = figure.add_gridspec(2, 2, height_ratios=(3, 2), width_ratios=(5, 1))
    active, absence = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 1])
    delay = figure.add_subplot(grid[1, 0])
    active.imshow(
        raster,
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
    active.set_title("active clients", fontsize="medium")
    absence.plot(gaps, np.arange(n), ".", color=COLOURS[1], markersize=3)
    absence.set_ylim(n - 0.5, -0.5)
    absence.tick_params(labelleft=False)
    absence.set_xlim(left=0)
    label_axes(absence, "longest absence", "")
    average, longest = float(np.mean(tau)), int(np.max(tau))
    delay.plot(np.arange(rounds), tau, color=COLOURS[0], linewidth=1.0, label=r"$\tau_t$")
    delay.axhline(average, color=COLOURS[2], linestyle="--", label=rf"$\tau_{{avg}}$ = {average:.4g}")
    delay.axhline(longest, color=COLOURS[1], linestyle=":", label=rf"$\tau_{{max}}$ = {longest}")
    if tau_max_bound is not None:  # as text, because the bound is usually far above the measured delays
        delay.plot([], [], " ", label=rf"lemma: $E[\tau_{{max}}] \leq$ {tau_max_bound:.4g}")
    delay.set_xlim(-0.5, rounds - 0.5)
    delay.set_ylim(bottom=0)
    label_axes(delay, "round", "delay in rounds")
    legend = figure.add_subplot(grid[1, 1])
    legend.axis("off")
    legend.legend(*delay.get_legend_handles_labels(), frameon=False, loc="upper center")
    return figure
