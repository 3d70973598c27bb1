"""Figures, drawn without pyplot so that nothing global is touched. Colours: Okabe and Ito's, safe for all."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..base.checks import InputError
from ..base.files import written_whole
from ..base.metrics import LABELS
from .patterns import Measured

# Their yellow, the last one, is darkened: a line of it would be lost on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#998C00")
_STYLES = ("-", "-", "--", ":", "-.")
_LOGARITHMIC = ("error", "train_loss")


def curves(runs: Mapping[str, pd.DataFrame], columns: Sequence[str], title: str = "") -> Figure:
    """One panel a column, one curve a run, over rounds."""
    figure = Figure(figsize=(6.0 * len(columns), 4.0), layout="constrained")
    for ax, column in zip(figure.subplots(1, len(columns), squeeze=False)[0], columns, strict=True):
        for number, (label, metrics) in enumerate(runs.items()):
            # Curves of one family lie on each other: the style of each shows through the next.
            ax.plot(
                metrics["round"],
                metrics[column],
                label=label,
                color=COLOURS[number % len(COLOURS)],
                linestyle=_STYLES[number % len(_STYLES)],
                linewidth=max(1.4, 2.6 - 0.4 * number),
            )
        if column in _LOGARITHMIC:
            ax.set_yscale("log")
        _dress(ax, "round", LABELS[column])
        if len(runs) > 1:
            ax.legend(frameon=False)
    if title:
        figure.suptitle(wrapped(title, figure.get_figwidth()))
    return figure


def wrapped(title: str, inches: float) -> str:
    """In lines that a figure of that width has room for."""
    return "\n".join(textwrap.wrap(title, int(10 * inches)))


def participation(measured: Measured, title: str) -> Figure:
    """Who took part, tau_t over the rounds, and how long each client stayed away."""
    figure = Figure(figsize=(9.0, 6.5), layout="constrained")
    figure.suptitle(wrapped(title, figure.get_figwidth()))
    grid = figure.add_gridspec(2, 2, height_ratios=(3, 2), width_ratios=(5, 1))
    raster, gaps = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 1])
    tau = figure.add_subplot(grid[1, 0])
    n, rounds, delays = measured.pattern.N, measured.rounds, measured.delays

    raster.imshow(
        measured.raster,
        aspect="auto",
        interpolation="nearest",
        cmap="Blues",
        vmin=0,
        extent=(-0.5, rounds - 0.5, n - 0.5, -0.5),
    )
    _dress(raster, "", "client")
    raster.set_title("who took part", fontsize="medium")
    gaps.plot(delays.gaps, np.arange(n), ".", color=COLOURS[1], markersize=3)
    gaps.set_ylim(n - 0.5, -0.5)
    gaps.tick_params(labelleft=False)
    gaps.set_xlim(left=0)
    _dress(gaps, "longest absence", "")
    tau.plot(np.arange(rounds), delays.tau, color=COLOURS[0], linewidth=1.0, label=r"$\tau_t$")
    tau.axhline(delays.avg, color=COLOURS[2], linestyle="--", label=rf"$\tau_{{avg}}$ = {delays.avg:.4g}")
    tau.axhline(delays.max, color=COLOURS[1], linestyle=":", label=rf"$\tau_{{max}}$ = {delays.max}")
    if measured.tau_max_bound is not None:  # in words: it is far above the measured delays as a rule
        tau.plot([], [], " ", label=rf"lemma: $E[\tau_{{max}}] \leq$ {measured.tau_max_bound:.4g}")
    tau.set_xlim(-0.5, rounds - 0.5)
    tau.set_ylim(bottom=0)
    _dress(tau, "round", "delay in rounds")
    legend = figure.add_subplot(grid[1, 1])
    legend.axis("off")
    legend.legend(*tau.get_legend_handles_labels(), frameon=False, loc="upper center")
    return figure


def save(figure: Figure, path: str | Path) -> Path:
    """Writes the figure whole or not at all and returns where it is."""
    check_path(path)
    with written_whole(path) as part:
        figure.savefig(part, dpi=150)
    return Path(path).resolve()


def check_path(path: str | Path) -> None:
    """Refuses, before anything is computed, a path that no figure could be written to."""
    path = Path(path)
    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise InputError("out", str(path), f"a file ending in one of: {', '.join(sorted(known))}")
    if not path.parent.is_dir():
        raise InputError("out", str(path), "a file in an existing folder")


def _dress(ax: Axes, x: str, y: str) -> None:
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.spines[["top", "right"]].set_visible(False)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins="auto"))
