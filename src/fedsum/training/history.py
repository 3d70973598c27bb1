"""The result of a run."""

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..algorithms import State
from ..base.checks import InputError, nearest
from ..participation import Delays
from ..tasks import BaseTask, directions_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


_MAIN = ("train_loss", "test_accuracy", "error")
_ROWS_SHOWN = 5


@dataclass(frozen=True, repr=False)
class History:
    """The result of simulate()."""

    task: BaseTask
    label: str
    """the algorithm's name in tables and figures"""
    rows: list[dict[str, float]]
    """one row per evaluation; `metrics` is the same as a table"""
    server: State
    clients: Mapping[int, State]
    """the state of every client ever active, by id"""
    memory: Mapping[int, State]
    """the server's memory of every client ever active, by id"""
    delays: Delays
    diverged: int | None = None
    """rounds done when an evaluation was not finite and the run stopped; None if it did not diverge"""
    stopped: int | None = None
    """rounds done when the rule `stop` ended the run; None if it did not"""
    reason: str = ""
    """why the run diverged or stopped early, or that its train loss rose; empty otherwise"""
    seed: int = 0
    per_client: "pd.DataFrame | None" = None
    """with `simulate(per_client=True)`: client, active rounds, loss and accuracy at the last evaluation"""

    @property
    def x(self) -> Tensor:
        """The final server model, flat."""
        return self.server["x"]

    @property
    def metrics(self) -> "pd.DataFrame":
        """One row per evaluation: round (rounds done), train_loss, communication, bytes, tau, seconds, ..."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def model(self) -> Any:
        """The final server model as the task's own kind of model."""
        return self.task.model(self.x)

    def plot(self, *others: "History", x: str = "round") -> "Figure":
        """Train loss over rounds, with test accuracy, error and own metrics where the task has them.

        `others` are drawn beside this run, for comparison. Two runs of one algorithm are numbered. `x` is another
        column of the metrics for the horizontal axis, such as "bytes" or, with devices, "time".
        """
        from ..figures import curves

        histories = (self, *others)
        for history in histories:
            if x not in history.rows[0]:
                raise InputError("x", x, nearest(x, history.rows[0]))
        names = dict.fromkeys((*_MAIN, *directions_of(self.task)))
        columns = [name for name in names if all(name in history.rows[0] for history in histories)]
        labels = [history.label for history in histories]
        numbered = [
            f"{label} ({labels[: i + 1].count(label)})" if labels.count(label) > 1 else label
            for i, label in enumerate(labels)
        ]
        clients = {history.task.n for history in histories}
        title = ", ".join(dict.fromkeys(labels)) + (f" on {clients.pop()} clients" if len(clients) == 1 else "")
        tables = {label: history.metrics for label, history in zip(numbered, histories, strict=True)}
        return curves(tables, columns, title, x)

    def __repr__(self) -> str:
        last = self.rows[-1]
        names = [name for name in dict.fromkeys((*_MAIN, *directions_of(self.task))) if name in last]
        values = ", ".join(f"{name} {last[name]:.4g}" for name in names)
        end = f", diverged by round {self.diverged}" if self.diverged is not None else ""
        return f"History({self.label}, {self.task.n} clients, {int(last['round'])} rounds: {values}{end})"

    def _repr_html_(self) -> str:
        """The last evaluations, for notebooks."""
        return f"<p>{html.escape(repr(self))}</p>" + str(self.metrics.tail(_ROWS_SHOWN).to_html(index=False))
