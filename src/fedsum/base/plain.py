"""Values as the plain types that TOML has."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

Table = dict[str, Any]
"""what a TOML file holds"""
DIGEST = "sha256"
_MOST_NUMBERS = 10_000
"""that are written into a file; beyond it a digest stands for them"""


def plain(value: Any, rounds: int) -> Any:
    """`value` in types that TOML has; a function of the round by its values over so many rounds.

    >>> plain({"p": lambda t: 0.5 / (t + 1), "n": np.int64(3)}, rounds=2)
    {'p': {'name': 'PerRound', 'values': [0.5, 0.25]}, 'n': 3}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item, rounds) for key, item in value.items() if item is not None}
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if callable(value):
        values = [plain(value(t), rounds) for t in range(rounds)]
        if any(item != values[0] for item in values[1:]):
            return bounded({"name": "PerRound", "values": values}, values)
        return values[0]
    if isinstance(value, Tensor | np.ndarray):
        return bounded(value.tolist(), value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value) if isinstance(value, set | frozenset) else value
        items = [plain(item, rounds) for item in items]
        return bounded(items, items)
    return repr(value)


def bounded(written: Any, values: Any) -> Any:
    """`written`, or a digest of its values if they are too many for a file."""
    return written if json.dumps(values).count(",") < _MOST_NUMBERS else {DIGEST: sha256(values)}


def sha256(values: Any) -> str:
    """Of plain values."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()
