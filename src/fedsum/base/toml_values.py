"""Values as plain TOML types."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

Table = dict[str, Any]
"""a TOML table"""
DIGEST = "sha256"
_MOST_NUMBERS = 10_000
"""the most numbers of one value that a file holds; a longer value is replaced by its digest"""


def plain(value: Any, rounds: int) -> Any:
    """`value` in TOML types; a function of the round becomes the list of its values over `rounds` rounds.

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


def bounded(value: Any, numbers: Any) -> Any:
    """`value`, or the digest of its `numbers` if they are too many for a file."""
    return value if json.dumps(numbers).count(",") < _MOST_NUMBERS else {DIGEST: sha256(numbers)}


def sha256(values: Any) -> str:
    """The SHA-256 digest of plain values."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()
