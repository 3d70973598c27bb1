"""Learning rates to start with, for the measured participation and the measured curvature of a task."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .. import theory
from ..participation import Ids
from ..tasks import Curvature

SAFETY = 0.5
"""the advised step, as a share of the stability limit: the sharpness of a network increases during training"""


def rate_advice(
    ages: NDArray[np.float64], *, K: int, L: Curvature, sets: Sequence[Ids] = (), n: int = 0
) -> dict[str, dict[str, float]]:
    """Per algorithm, the largest stable eta_l for eta_g = 1, and the advised rate, half of this limit.

    The family's limits are those of docs/theory.md, for the gradient ages and for the rounds themselves. For SCAFFOLD,
    MIFA and FedVARP, the limit is that of a local step on a client's own loss. FedAvg, FedAU and FedAWE store no
    gradients and tolerate larger rates, because a client's gradient vanishes where its own loss is flat. Their limit is
    that of the curvature of the mean loss.

    Args:
      ages: the share of clients' gradients in the server's sum that are 0, 1, ... rounds old.
      K: local steps.
      L: of the task, from `fedsum.tasks.curvature`.
      sets: the active clients of each round; without them, gradient ages are taken as independent of the round.
      n: N, the number of clients in `sets`.
    """

    def limit_of(follows_sum: bool) -> float:
        limit = theory.stability_limit(ages, K=K, follows_sum=follows_sum)
        return theory.recorded_limit(sets, n, K=K, limit=limit, follows_sum=follows_sum) / K

    fedsum, fedsum_b = limit_of(True), limit_of(False)
    limits = {
        "FedSUM": fedsum / L.client,
        "FedSUM-CR": min(fedsum, fedsum_b) / L.client,
        "FedSUM-B": fedsum_b / L.client,
        **dict.fromkeys(("SCAFFOLD", "MIFA", "FedVARP"), 2 / L.client),
        **dict.fromkeys(("FedAvg", "FedAU", "FedAWE"), 2 / L.mean_loss),
    }
    return {label: {"limit": limit, "eta_l": SAFETY * limit, "eta_g": 1.0} for label, limit in limits.items()}
