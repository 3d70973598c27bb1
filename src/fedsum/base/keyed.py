"""Randomness that is keyed, never streamed.

Every draw is a function of (seed, purpose, round, client): results do not depend on who else took part,
on order, on chunking or on a restart. The key goes into the counter of a counter-based generator
(Philox), so there is no state to carry and nothing to replay.
"""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a draw is for; two purposes never share a stream."""

    SCHEDULE = 0
    BATCHES = 1
    WEIGHTS = 2
    PARTITION = 3
    DROPOUT = 4


def rng(seed: int, purpose: Purpose, round: int = 0, client: int = 0) -> np.random.Generator:
    """The generator of this key.

    >>> a, b = rng(0, Purpose.BATCHES, 3, 7), rng(0, Purpose.BATCHES, 3, 7)
    >>> bool((a.random(5) == b.random(5)).all())
    True
    """
    # The first counter word is the one that a stream advances; 2**64 draws fit before it carries over.
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, client, round, int(purpose)]))


def torch_seed(seed: int, purpose: Purpose, round: int = 0, client: int = 0) -> int:
    """A seed for torch's own generators, for what cannot be drawn from `rng`: weights and dropout."""
    return int(rng(seed, purpose, round, client).integers(2**63))
