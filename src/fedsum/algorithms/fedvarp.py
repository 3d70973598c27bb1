from dataclasses import dataclass

import torch
from torch import Tensor

from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class FedVARP(Algorithm):
    """FedVARP (Jhunjhunwala et al., 2022): variance reduction for FedAvg, by a memory of every client's latest mean
    gradient.

    An active client takes K steps of SGD from the server's model x, with the local learning rate eta_l. It sends G_i,
    the mean of its K gradients. y_i, on the server, is client i's latest G_i, zero before its first active round. ybar
    is the mean of all y_i:

        v = ybar + mean_{S_t} (G_i - y_i)
        x -= eta_g eta_l K * v
        y_i <- G_i for i in S_t,  ybar = (1/N) sum_{all i} y_i

    S_t: the active clients of round t. N: the number of clients. eta_g: the global learning rate.

    v uses the old y_i and ybar. The server updates ybar instead of recomputing it. An empty round (no active clients)
    changes nothing. Messages per active client: one vector down, one up.

    Args:
      displacements: y_i is eta_l K G_i, with the eta_l of the client's own round, and the step is x -= eta_g * v. The
        code of FedAWE's authors does this. With a constant eta_l the iterates are the same.

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
