from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class SCAFFOLD(Algorithm):
    """SCAFFOLD, option II (Karimireddy et al., 2020): control variates correct the local steps for heterogeneous
    clients.

    Client i stores its control variate c_i, the mean of its K gradients in its last active round, zero before its
    first. The server stores c, the mean of all c_i, and sends it with its model x.

    An active client takes K steps from x, with step size eta_l along g + (c - c_i), with g its own gradient. G_i is the
    mean of its K gradients. It sends d_i = G_i - c_i:

        x -= eta_g eta_l K * (mean_{S_t} d_i + c)
        c += (1/N) sum_{S_t} d_i
        c_i <- G_i

    S_t: the active clients of round t. N: the number of clients. eta_l, eta_g: the local and the global learning rate.

    The iterates are those of the original, which sends two vectors up. This form is SCALLION without compression (Huang
    et al., 2024). An empty round (no active clients) changes nothing. Messages per active client: two vectors down, one
    up.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> fedsum.simulate(task, SCAFFOLD(), fedsum.Cyclic(2, 1), rounds=500, local_steps=2, eta_l=0.02).x
    tensor([3.0000])
    """

    changes: ClassVar[Mapping[str, str]] = {"d": "c"}

    def init_server(self, x0: Tensor, first: Round) -> State:
        return {"x": x0, "c": torch.zeros_like(x0)}

    def init_client(self, x0: Tensor) -> State:
        return {"c": torch.zeros_like(x0)}

    def downlink(self, server: State, now: Round) -> Message:
        return {"x": server["x"], "c": server["c"]}

    def plan(self, client: State, down: Message, now: Round) -> LocalPlan:
        return LocalPlan(start=down["x"], step=now.eta_l, correction=down["c"] - client["c"])

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        return {"d": G - client["c"]}, {"c": G}

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        if m == 0:
            return server
        x, c, d = server["x"], server["c"], total["d"]
        return {"x": x - now.stride * (d / m + c), "c": c + d / now.N}
