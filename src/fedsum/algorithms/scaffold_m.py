from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..base.checks import probability, set_fields
from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class SCAFFOLDM(Algorithm):
    """SCAFFOLD-M (Cheng et al., 2024): SCAFFOLD with momentum in the local steps.

    Client i stores its control variate c_i, the mean of its K gradients in its last active round, zero before its
    first. The server stores c, the mean of all c_i, and the momentum v, zero at first.

    An active client takes K steps from the server's model x. A step is eta_l times beta (g + c - c_i) + (1 - beta) v,
    with g its own gradient. This equals beta eta_l times g + (u - c_i) with u = c + (1 - beta)/beta v, so the server
    sends x and u. G_i is the mean of the client's K gradients. It sends d_i = G_i - c_i:

        v <- beta (mean_{S_t} d_i + c) + (1 - beta) v
        x -= eta_g eta_l K * v
        c += (1/N) sum_{S_t} d_i
        c_i <- G_i

    S_t: the active clients of round t. N: the number of clients. eta_l, eta_g: the local and the global learning rate.

    With beta = 1 it is SCAFFOLD. An empty round (no active clients) changes nothing. Messages per active client: two
    vectors down, one up.

    Args:
      beta: the weight of the current gradient, in (0, 1]; 1 - beta is the weight of the momentum v.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> fedsum.simulate(task, SCAFFOLDM(), fedsum.Cyclic(2, 1), rounds=500, local_steps=2, eta_l=0.02).x
    tensor([3.])
    """

    label: ClassVar[str] = "SCAFFOLD-M"
    changes: ClassVar[Mapping[str, str]] = {"d": "c"}

    beta: float = 0.2

    def __post_init__(self) -> None:
        set_fields(self, beta=probability("beta", self.beta))

    def init_server(self, x0: Tensor, first: Round) -> State:
        return {"x": x0, "c": torch.zeros_like(x0), "v": torch.zeros_like(x0)}

    def init_client(self, x0: Tensor) -> State:
        return {"c": torch.zeros_like(x0)}

    def downlink(self, server: State, now: Round) -> Message:
        return {"x": server["x"], "u": server["c"] + (1 - self.beta) / self.beta * server["v"]}

    def plan(self, client: State, down: Message, now: Round) -> LocalPlan:
        return LocalPlan(start=down["x"], step=self.beta * now.eta_l, correction=down["u"] - client["c"])

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        return {"d": G - client["c"]}, {"c": G}

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        if m == 0:
            return server
        c, d = server["c"], total["d"]
        v = self.beta * (d / m + c) + (1 - self.beta) * server["v"]
        return {"x": server["x"] - now.stride * v, "c": c + d / now.N, "v": v}
