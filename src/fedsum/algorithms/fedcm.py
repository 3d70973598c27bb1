from dataclasses import dataclass

import torch
from torch import Tensor

from ..base.checks import probability, set_fields
from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class FedCM(Algorithm):
    """FedCM (Xu et al., 2021): FedAvg with the server's momentum in the local steps.

    The server sends its model x and its momentum Delta, zero at first. An active client takes K steps from x. A step is
    eta_l times alpha g + (1 - alpha) Delta, with g its own gradient. G_i is the mean of its K gradients:

        Delta <- alpha mean_{S_t} G_i + (1 - alpha) Delta
        x -= eta_g eta_l K * Delta

    S_t: the active clients of round t. eta_l, eta_g: the local and the global learning rate.

    With alpha = 1 it is FedAvg. FedCM is biased towards clients that are active often. An empty round (no active
    clients) changes nothing. Messages per active client: two vectors down, one up.

    Args:
      alpha: the weight of the client's own gradient, in (0, 1].

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> fedsum.simulate(task, FedCM(), fedsum.Cyclic(2, 1), rounds=500, local_steps=2, eta_l=0.02).x
    tensor([3.0039])
    """

    alpha: float = 0.1

    def __post_init__(self) -> None:
        set_fields(self, alpha=probability("alpha", self.alpha))

    def init_server(self, x0: Tensor, first: Round) -> State:
        return {"x": x0, "Delta": torch.zeros_like(x0)}

    def downlink(self, server: State, now: Round) -> Message:
        return {"x": server["x"], "Delta": server["Delta"]}

    def plan(self, client: State, down: Message, now: Round) -> LocalPlan:
        momentum = (1 - self.alpha) / self.alpha * down["Delta"]
        return LocalPlan(start=down["x"], step=self.alpha * now.eta_l, correction=momentum)

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        return {"G": G}, {}

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        if m == 0:
            return server
        Delta = self.alpha * (total["G"] / m) + (1 - self.alpha) * server["Delta"]
        return {"x": server["x"] - now.stride * Delta, "Delta": Delta}
