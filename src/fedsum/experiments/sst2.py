"""A schedule of the experiment `sst2-cure`: another initial state of FedSUM-CR."""

from dataclasses import dataclass

import numpy as np

from ..participation import Ids, Uniform


@dataclass(frozen=True)
class AllFirst(Uniform):
    """All clients in the first round, then S of N uniformly: from round 1 on, y is the sum of all N gradients.

    >>> [AllFirst(4, 2).active(seed=0, round=t).tolist() for t in range(2)]
    [[0, 1, 2, 3], [0, 3]]
    """

    def active(self, seed: int, round: int) -> Ids:
        return np.arange(self.n) if round == 0 else super().active(seed, round)
