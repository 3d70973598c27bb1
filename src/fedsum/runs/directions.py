"""Which direction of a metric is better, as the runs recorded it."""

from collections.abc import Iterable

from ..base.checks import InputError
from ..base.metrics import DIRECTIONS, Better
from ..spec import METRIC_DIRECTIONS
from .run_reader import Run


def directions(runs: Iterable[Run]) -> dict[str, Better]:
    """The directions of all own metrics of these runs' tasks; refuses runs that contradict each other."""
    stated: dict[str, Better] = {}
    for run in runs:
        for name, better in run.config.get(METRIC_DIRECTIONS, {}).items():
            if better not in DIRECTIONS or stated.setdefault(name, better) != better:
                other = stated.get(name, "'higher' or 'lower'")
                raise InputError(f"{METRIC_DIRECTIONS}.{name} of {run.folder}", better, f"another run states {other}")
    return stated
