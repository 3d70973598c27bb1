"""One local step of stacked clients. The reference, `loop.py`, takes the same step in place."""

import torch
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


class FinishedSums:
    """The sums of clients that take fewer steps than the others of their chunk, each after the client's own last step.

    Later steps of such a client are computed and discarded.

    Args:
      counts: the clients' own numbers of steps, [C]; None if all take every step.
    """

    def __init__(self, counts: Tensor | None) -> None:
        self._counts, self._k = counts, 0
        self._sums: Tensor | None = None

    def step_done(self, total: Tensor) -> None:
        """Notes the sums after one more step."""
        self._k += 1
        if self._counts is not None:
            before = torch.zeros_like(total) if self._sums is None else self._sums
            self._sums = torch.where((self._counts == self._k)[:, None], total, before)

    def sums(self, total: Tensor) -> Tensor:
        """The sums of all clients, from the sums after the last step."""
        return total if self._sums is None else self._sums


def is_pulled(plan: LocalPlan) -> bool:
    """Whether the steps need `pull` and `decay`. Most algorithms use neither, and their steps cost less."""
    return plan.pull != 0 or plan.decay != 1
