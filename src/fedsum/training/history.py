"""The result of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..algorithms import State
from ..participation import Delays
from ..tasks import BaseTask

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
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
    reason: str = ""
    """why the run diverged, and up to which eta_l theory guarantees convergence"""

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

    def plot(self) -> "Figure":
        """Train loss over rounds, with test accuracy or error where the task has them."""
        from ..figures import curves

        columns = [c for c in ("train_loss", "test_accuracy", "error") if c in self.rows[0]]
        return curves({self.label: self.metrics}, columns)
