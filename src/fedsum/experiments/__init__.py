"""The paper's experiments and further experiments, one sweep file per experiment."""

from pathlib import Path
from typing import Any

from ..base.checks import InputError, nearest
from ..spec import overlaid, read_settings
from .demo import DEMOS

__all__ = ["DEMOS", "EXPERIMENTS", "experiment"]

_FOLDER = Path(__file__).parent
_BASE = "paper"
FIGURE, SMALL = "figure", "small"
EXPERIMENTS = sorted(path.stem for path in _FOLDER.glob("*.toml") if path.stem != _BASE)


def experiment(name: str, scale: str = "full") -> tuple[dict[str, Any], dict[str, Any]]:
    """The sweep of an experiment and the options of its figure; `scale` is "full" or "small".

    >>> sweep, figure = experiment("bias")
    >>> sweep["sweep"]["algorithm"], figure["title"]
    (['FedSUM', 'FedAvg'], 'FedSUM and FedAvg under biased participation')
    """
    if name not in EXPERIMENTS:
        raise InputError("experiment", name, nearest(name, EXPERIMENTS))
    if scale not in ("full", SMALL):
        raise InputError("scale", scale, "'full' or 'small'")
    table = read_settings(_FOLDER / f"{name}.toml")
    small, figure = table.pop(SMALL), table.pop(FIGURE)
    return (overlaid(table, small) if scale == SMALL else table), figure
