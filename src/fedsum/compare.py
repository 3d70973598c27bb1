"""`fedsum.compare`: methods over seeds, paired. The parts that need pandas and matplotlib are in `report`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .runs import Run
from .training import History

if TYPE_CHECKING:
    from .report import Comparison

Source = str | Path | Run | History
"""a folder or packed file with runs, a run, or the result of simulate()"""


def compare(*sources: Source, by: str | None = None, **named: Source | Sequence[Source]) -> "Comparison":
    """Compares methods by the final value of a metric, paired by seed, for each task, schedule and devices.

    Args:
      sources: folders of runs or sweeps, packed files, `Run`s or `History`s. Runs that differ only in their seed are
        one method.
      by: the metric; default test accuracy, or else error or train loss.
      named: methods under names of your own, each a source or a list of sources.

    Returns:
      A `Comparison` with `.table` (means, and paired differences to the first method, with 95% intervals of Student's
      t), `.plot()` and `.excluded`. `.against("FedAvg")` takes differences to another method. With several schedules,
      the table has a column `problem`, as `.difference("FedAvg", "Biased")` takes it.

    >>> import fedsum
    >>> task, schedule = fedsum.tasks.Quadratic.random(6, 3), fedsum.Biased(6, group=2)
    >>> options = {"rounds": 40, "local_steps": 2, "eta_l": 0.1}
    >>> algorithms = (fedsum.FedSUM(), fedsum.FedAvg())
    >>> runs = [fedsum.simulate(task, a, schedule, seed=s, **options) for a in algorithms for s in range(3)]
    >>> fedsum.compare(*runs, by="error").table[["method", "seeds", "pairs"]]
       method  seeds  pairs
    0  FedSUM      3      3
    1  FedAvg      3      3
    """
    from .report import compare

    return compare(sources, named, by)
