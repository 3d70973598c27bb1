"""Final loss or accuracy of each client, per curve, for the report page."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..runs import Run
from .facets import Facets, ordered

_SCORES = ("accuracy", "loss")
"""columns of a run's table of clients; the first one that all runs have is shown"""


def served(runs: Sequence[Run], curves: Sequence[Facets]) -> list[tuple[Facets, dict[str, Any]]]:
    """Per curve with tables of clients: `clients`, `x` (share of rounds with the client) and `y` (its score).

    Shares and scores are means over the curve's runs that have the same clients.
    """
    groups: dict[Facets, list[Run]] = defaultdict(list)
    for run, curve in zip(runs, curves, strict=True):
        if run.clients is not None and run.round and run.state != "diverged":
            groups[curve].append(run)
    tables = [run.clients for group in groups.values() for run in group if run.clients is not None]
    score = next((name for name in _SCORES if all(name in table for table in tables)), None)
    if score is None:
        return []
    return [(curve, _means(groups[curve], score)) for curve in ordered(groups)]


def _means(group: Sequence[Run], score: str) -> dict[str, Any]:
    first = group[0].clients
    assert first is not None
    names = first["client"].tolist()
    pairs = [(run, run.clients) for run in group if run.clients is not None and run.clients["client"].tolist() == names]
    shares = np.mean([table["rounds"].to_numpy() / run.round for run, table in pairs], axis=0)
    scores = np.mean([table[score].to_numpy() for _, table in pairs], axis=0)
    return {
        "clients": [str(name) for name in names],
        "x": [float(f"{share:.4g}") for share in shares],
        "y": [float(f"{value:.5g}") for value in scores],
        "label": score,
        "percent": score == "accuracy",
    }
