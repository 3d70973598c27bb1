"""The number of local steps: K for all clients, or each client's own number K_i."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..participation import Ids

StepCounts = int | NDArray[np.int64]
"""K, or K_i for each of the N clients, [N]"""


def steps_of(counts: StepCounts, client: int) -> int:
    """The number of local steps of a client."""
    return counts if isinstance(counts, int) else int(counts[client])


def cohort_counts(counts: StepCounts, clients: Ids) -> Tensor | None:
    """K_i of each client of a cohort, [S]; None if all clients of the federation take K steps."""
    return None if isinstance(counts, int) else torch.from_numpy(counts[clients])


def most_steps(counts: StepCounts, clients: Ids) -> int:
    """The largest number of steps in a cohort."""
    return counts if isinstance(counts, int) else int(counts[clients].max(initial=1))
