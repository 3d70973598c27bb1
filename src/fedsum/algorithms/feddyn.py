from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..base.checks import InputError, real, set_fields
from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class FedDyn(Algorithm):
    """FedDyn (Acar et al., 2021): a regulariser per client aligns the clients' minima with the minimum of the mean
    loss.

    Client i takes K steps on f_i(z) - <lambda_i, z> + alpha/2 ||z - x||^2, where f_i is its loss, x the server's model
    and z the local model. A step is eta_l, the local learning rate, times g - lambda_i + alpha (x_k - x), with g the
    client's gradient at its model x_k after k steps. With D_i = x - x_K, the displacement of client i after its K
    steps:

        lambda_i += alpha D_i
        h += alpha/N sum_{S_t} D_i
        x -= mean_{S_t} D_i + h / alpha

    S_t: the active clients of round t. N: the number of clients. lambda_i, on the client, and h, on the server, start
    at zero. h is always the mean of all lambda_i.

    The global learning rate eta_g must be 1. An empty round (no active clients) changes nothing. The authors' code
    draws again until a client is active. Messages per active client: one vector down, one up.

    Args:
      alpha: the weight of the regulariser. The paper uses 0.1, 0.01 and 0.001.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> run = fedsum.simulate(task, FedDyn(alpha=1.0), fedsum.Biased(2, group=1), rounds=500, local_steps=2, eta_l=0.02)
    >>> run.x
    tensor([3.0000])
    """

    unequal_steps: ClassVar[Literal["means", "displacements", "refused"]] = "refused"

    alpha: float = 0.1

    def __post_init__(self) -> None:
        set_fields(self, alpha=real("alpha", self.alpha, above=0))

    def check(self, first: Round) -> None:
        if first.eta_g != 1:
            raise InputError("eta_g", first.eta_g, "1: FedDyn has no global learning rate")

    def init_server(self, x0: Tensor, first: Round) -> State:
        return {"x": x0, "h": torch.zeros_like(x0)}

    def init_client(self, x0: Tensor) -> State:
        return {"lambda": torch.zeros_like(x0)}

    def plan(self, client: State, down: Message, now: Round) -> LocalPlan:
        rho = 1 - now.eta_l * self.alpha
        return LocalPlan(start=down["x"], step=now.eta_l, correction=-client["lambda"], pull=self.alpha, decay=rho)

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        r = sum(plan.decay**k for k in range(round(now.K)))
        D = now.eta_l * (now.K * G - r * client["lambda"])
        return {"D": D}, {"lambda": client["lambda"] + self.alpha * D}

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        if m == 0:
            return server
        h = server["h"] + self.alpha / now.N * total["D"]
        return {"x": server["x"] - total["D"] / m - h / self.alpha, "h": h}
