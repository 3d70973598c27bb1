"""One local step of stacked clients. The reference, `loop.py`, takes the same step in place."""

from torch import Tensor

from ..algorithms import LocalPlan

Number = float | Tensor


def local_step(
    x: Tensor,
    total: Tensor,
    g: Tensor,
    start: Tensor,
    correction: Number,
    step: Number,
    pull: Number | None = None,
    decay: Number | None = None,
) -> tuple[Tensor, Tensor]:
    """The models and the sums of gradients after a step of a `LocalPlan`, from the gradients g at the models x.

    Scalars may be tensors on the device, for steps that are compiled or captured. Without `pull` and `decay` (both or
    none), pull is 0 and decay is 1, and `start` is not read.
    """
    if pull is None or decay is None:
        return x - step * (g + correction), total + g
    return x - step * (g + correction + pull * (x - start)), decay * total + g


def is_pulled(plan: LocalPlan) -> bool:
    """Whether the steps need `pull` and `decay`. Most algorithms use neither, and their steps cost less."""
    return plan.pull != 0 or plan.decay != 1
