from dataclasses import dataclass

import torch
from torch import Tensor

from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class FedVARP(Algorithm):
    """FedVARP (Jhunjhunwala et al., 2022): variance reduction with the clients' latest gradients.

        v = ybar + mean_{S_t} (G_i - y_i);   x -= eta_g eta_l K * v;   y_i <- G_i,  ybar = (1/N) sum y_i

    S_t: the active clients of round t. G_i: the mean of client i's K gradients.
    y_i: client i's latest mean gradient, in the server's memory. v uses the old y_i and ybar. The server updates ybar
    instead of recomputing it. An empty round (no active clients) changes nothing. One vector down, one up.

    Args:
      displacements: y_i is eta_l K G_i, the client's displacement at the rate of its own round, and x -= eta_g * v.
        The code of FedAWE's authors does this. With a constant eta_l the iterates are the same.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> fedsum.simulate(task, FedVARP(), fedsum.Cyclic(2, 1), rounds=500, local_steps=2, eta_l=0.02).x
    tensor([2.9846])
    """

    displacements: bool = False

    def init_server(self, x0: Tensor, first: Round) -> State:
        return {"x": x0, "ybar": torch.zeros_like(x0)}

    def init_row(self, x0: Tensor) -> State:
        return {"y": torch.zeros_like(x0)}

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        return {"G": G}, {}

    def digest(self, row: State, uplink: Message, now: Round) -> tuple[Message, State]:
        latest = now.eta_l * now.K * uplink["G"] if self.displacements else uplink["G"]
        return {"change": latest - row["y"]}, {"y": latest}

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        if m == 0:
            return server
        x, ybar, change = server["x"], server["ybar"], total["change"]
        stride = now.eta_g if self.displacements else now.stride
        return {"x": x - stride * (ybar + change / m), "ybar": ybar + change / now.N}
