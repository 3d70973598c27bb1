"""Keyed random numbers: every draw is a function of its key, without a shared generator.

Every draw is a function of (seed, purpose, round, client). Results do not depend on the other active clients,
on order, on chunking or on a restart. The key goes into the counter of a counter-based generator
(Philox), so there is no generator state to save or replay.
"""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """The purpose of a draw. Two purposes never share a stream."""

    SCHEDULE = 0
    BATCHES = 1
    WEIGHTS = 2
    PARTITION = 3
    DROPOUT = 4
    CURVATURE = 5
    COMPRESSION = 6
    DEVICES = 7
    EVALUATION = 8


def rng(seed: int, purpose: Purpose, round: int = 0, client: int = 0) -> np.random.Generator:
    """The generator for the key (seed, purpose, round, client).

    >>> a, b = rng(0, Purpose.BATCHES, 3, 7), rng(0, Purpose.BATCHES, 3, 7)
    >>> bool((a.random(5) == b.random(5)).all())
    True
    """
    # A stream advances the first counter word, which holds 2**64 draws before it carries over.
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, client, round, int(purpose)]))


def torch_seed(seed: int, purpose: Purpose, round: int = 0, client: int = 0) -> int:
    """A seed for torch's generators. Weights and dropout use it, because they cannot be drawn from `rng`."""
    return int(rng(seed, purpose, round, client).integers(2**63))
