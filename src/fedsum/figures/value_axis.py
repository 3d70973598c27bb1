"""The vertical axis of a metric: its scale, its limits and its ticks."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, Formatter, MaxNLocator, NullFormatter

from ..base.metrics import is_logarithmic, is_percent

CROSS = "x"
"""the marker at the end of a diverged run"""


class PercentTicks(Formatter):
    """Shares as percentages. All ticks of an axis have as many decimals as the axis needs: 40%, not 40.0%."""

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        percentages = 100 * np.array(values)
        decimals = next((n for n in range(3) if np.allclose(percentages, percentages.round(n))), 3)
        return [f"{value:.{decimals}f}%" for value in percentages]

    def __call__(self, x: float, pos: int | None = None) -> str:
        return self.format_ticks([x])[0]


def scale(ax: Axes, metric: str, shown: Sequence[float]) -> None:
    """Scales the y axis to the values that must be visible.

    Other values, such as those of diverged runs, may leave the panel; crosses are moved to its edge.
    """
    log = is_logarithmic(metric)
    if log:
        ax.set_yscale("log")
    fit = [value for value in shown if value > 0 or not log]
    if fit and min(fit) < max(fit):
        low, high = min(fit), max(fit)
        margin = (high / low) ** 0.05 if log else 0.05 * (high - low)
        bottom, top = (low / margin, high * margin) if log else (low - margin, high + margin)
        ax.set_ylim(bottom, top)
        for line in ax.lines:
            if line.get_marker() == CROSS:
                line.set_ydata(np.clip(line.get_ydata(), bottom, top))
    if is_percent(metric):
        ax.yaxis.set_major_formatter(PercentTicks())
    elif log:
        _plain_ticks(ax)


def _plain_ticks(ax: Axes) -> None:
    """Plain numbers, such as 0.01, on a logarithmic axis.

    An axis of less than three decades would have few tick labels or none, so it gets ticks between the powers of ten.
    """
    low, high = ax.get_ylim()
    if high < 1000 * low:
        powers = 10.0 ** np.arange(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for factors in ((1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
            ticks = [float(f"{f * power:.3g}") for power in powers for f in factors if low <= f * power <= high]
            if len(ticks) >= 4:
                ax.yaxis.set_major_locator(FixedLocator(ticks))
                break
        else:
            ax.yaxis.set_major_locator(MaxNLocator(nbins=5))
    ax.yaxis.set_major_formatter("{x:.3g}")
    ax.yaxis.set_minor_formatter(NullFormatter())
