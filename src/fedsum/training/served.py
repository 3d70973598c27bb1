"""Per-client evaluation: summary metrics over the clients, and a table with one row per client."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..tasks import BaseTask, ClientScores

if TYPE_CHECKING:
    import pandas as pd


def served_metrics(
    scores: ClientScores, counts: NDArray[np.int64], groups: Mapping[str, NDArray[np.int64]] | None = None
) -> dict[str, float]:
    """Mean, worst tenth and gap of every score, and its mean over each group of clients.

    The gap is the difference between the tenth of the clients with the most active rounds and the tenth with the
    fewest; it is positive if the latter are worse off. A tenth is at least one client. Clients that were active as
    often as the last client of a tenth belong to it too.

    Args:
      scores: `loss` and `accuracy` per client.
      counts: active rounds per client.
      groups: ids of clients by the name of their group, a task's `client_groups`.

    >>> scores = {"accuracy": np.array([0.9, 0.8, 0.4])}
    >>> {name: round(value, 3) for name, value in served_metrics(scores, np.array([9, 5, 1])).items()}
    {'client_accuracy_mean': 0.7, 'client_accuracy_worst': 0.4, 'client_accuracy_gap': 0.5}
    """
    tenth, by_count = max(1, len(counts) // 10), np.sort(counts)
    rare, frequent = counts <= by_count[tenth - 1], counts >= by_count[-tenth]
    row = {}
    for name, values in scores.items():
        better = 1.0 if name == "accuracy" else -1.0
        row[f"client_{name}_mean"] = float(values.mean())
        row[f"client_{name}_worst"] = float(better * np.sort(better * values)[:tenth].mean())
        row[f"client_{name}_gap"] = float(better * (values[frequent].mean() - values[rare].mean()))
        for group, ids in (groups or {}).items():
            row[f"client_{name}_{group}"] = float(values[ids].mean())
    return row


def served_table(task: BaseTask, scores: ClientScores, counts: NDArray[np.int64]) -> "pd.DataFrame":
    """One row per client: `client` (name or id), `rounds` (active rounds), `loss` and `accuracy`."""
    import pandas as pd

    names = getattr(task, "client_names", None) or range(task.n)
    return pd.DataFrame({"client": list(names), "rounds": counts, **scores})
