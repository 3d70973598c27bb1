"""Learning rates to start with, for the measured participation and the measured curvature of a task."""

import numpy as np
from numpy.typing import NDArray

from .. import theory
from ..tasks import Curvature

SAFETY = 0.5
"""the advised step, as a share of the stability limit: the sharpness of a network increases during training"""


def rate_advice(ages: NDArray[np.float64], *, K: int, L: Curvature) -> dict[str, dict[str, float]]:
    """Per algorithm, the largest stable eta_l for eta_g = 1, and the rate at `SAFETY` times this limit.

    The family's limits are those of docs/theory.md. SCAFFOLD, MIFA and FedVARP are stable while each local step is, on
    the loss of a client. FedAvg, FedAU and FedAWE tolerate larger rates: without a correction a client's gradient
    vanishes where its own loss is flat, and the limit is that of the curvature of the mean loss.

    Args:
      ages: the share of clients' gradients in the server's sum that are 0, 1, ... rounds old.
      K: local steps.
      L: of the task, from `fedsum.tasks.curvature`.
    """
    fedsum, fedsum_b = (theory.stability_limit(ages, K=K, follows_sum=follows) / K for follows in (True, False))
    limits = {
        "FedSUM": fedsum / L.client,
        "FedSUM-CR": min(fedsum, fedsum_b) / L.client,
        "FedSUM-B": fedsum_b / L.client,
        **dict.fromkeys(("SCAFFOLD", "MIFA", "FedVARP"), 2 / L.client),
        **dict.fromkeys(("FedAvg", "FedAU", "FedAWE"), 2 / L.mean_loss),
    }
    return {label: {"limit": limit, "eta_l": SAFETY * limit, "eta_g": 1.0} for label, limit in limits.items()}
