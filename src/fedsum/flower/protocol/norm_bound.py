"""A bound on the norm of what each client has contributed: the h_i that its uplinks add up to."""

import math
from collections.abc import Iterable, Mapping
from statistics import median

import numpy as np
import torch
from torch import Tensor

from ...algorithms import Message

MEASURED = 3
"""clients that must be measured before anything is merged: with fewer, a median cannot reveal a malicious one"""
EXACT, SKETCHED = 1.001, 1.2
"""factors by which norms may be off: computed ones, because clients round, and those of sketches"""
_WIDTH = 256
"""numbers per sketch; its norm has a standard deviation of about 4%"""
_CHUNK = 1 << 20


class NormSketch:
    """A linear sketch of long vectors: its norm is about that of the vector, and sketches of changes add up.

    Each coordinate is added, with a random sign, to one of 256 numbers (a count sketch). The server can store
    the sketches of all clients' h_i, but not the h_i themselves. Clients do not know the key, so they cannot make a
    large vector with a small sketch. A vector of up to 256 coordinates is its own sketch.
    """

    def __init__(self, key: int) -> None:
        self.key = key
        self._places = np.empty(0, dtype=np.int16)

    def __call__(self, vectors: Message) -> Tensor:
        vector = torch.cat([vectors[name].detach().cpu().double().reshape(-1) for name in sorted(vectors)]).numpy()
        if len(vector) <= _WIDTH:
            return torch.from_numpy(vector)
        if len(self._places) != len(vector):
            self._places = np.random.default_rng(self.key).integers(0, 2 * _WIDTH, len(vector), dtype=np.int16)
        sketch = np.zeros(2 * _WIDTH)
        for start in range(0, len(vector), _CHUNK):
            part = slice(start, start + _CHUNK)
            sketch += np.bincount(self._places[part], vector[part], minlength=2 * _WIDTH)
        return torch.from_numpy(sketch[:_WIDTH] - sketch[_WIDTH:])


def largest_norm(norm_limit: float, norms: Iterable[float]) -> float:
    """The bound: `norm_limit` times the median of the clients' first norms; infinite if the limit is off."""
    typical = median(norms)
    return norm_limit * typical if norm_limit and typical else math.inf


def norm(vectors: Mapping[str, Tensor]) -> float:
    """The Euclidean norm over all vectors of a message."""
    return math.sqrt(sum(float(value.double().square().sum()) for value in vectors.values()))
