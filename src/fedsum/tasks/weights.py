"""The weights of the clients in the objective."""

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..base.checks import InputError
from .partition import Partition


def objective_scale(weights: str | ArrayLike | None, partition: Partition) -> Tensor | None:
    """N w_i of each client, in float64; None if all are 1."""
    accepted = f"None, 'samples', or {partition.n} numbers of at least 0 that sum to 1"
    if weights is None:
        return None
    if isinstance(weights, str):
        if weights != "samples":
            raise InputError("weights", weights, accepted)
        w = partition.sizes / partition.sizes.sum()
    else:
        try:
            w = np.asarray(weights, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError("weights", weights, accepted) from None
        if w.shape != (partition.n,) or not (w >= 0).all() or abs(w.sum() - 1) > 1e-6:
            raise InputError("weights", weights, accepted)
    return torch.as_tensor(w * partition.n)
