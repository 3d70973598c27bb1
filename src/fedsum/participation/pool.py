"""Clients of which some are drawn again and again."""

import numpy as np

from .schedule import Ids


def drawn_from(pool: Ids, free: int, size: int, generator: np.random.Generator) -> Ids:
    """`size` of the first `free` clients of the pool, drawn uniformly and sorted, at a cost of O(size).

    They are removed: the first `free` - `size` entries of the pool are the remaining clients.

    >>> pool = np.arange(5)
    >>> drawn = drawn_from(pool, 5, 2, np.random.default_rng(0))
    >>> sorted([*drawn.tolist(), *pool[:3].tolist()])
    [0, 1, 2, 3, 4]
    """
    places = generator.choice(free, size=size, replace=False, shuffle=False)
    drawn: Ids = np.sort(pool[places])
    # The last entries fill the places of the drawn clients.
    remaining = free - size
    staying = np.setdiff1d(np.arange(remaining, free), places, assume_unique=True)
    pool[np.sort(places[places < remaining])] = pool[staying]
    return drawn
