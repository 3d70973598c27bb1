from dataclasses import dataclass

import torch
from torch import Tensor

from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class MIFA(Algorithm):
    """MIFA (Gu et al., 2021): the server remembers every client's latest mean gradient and steps along the mean of all.

    An active client takes K steps of SGD from the server's model x, with the local learning rate eta_l. It sends G_i,
    the mean of its K gradients. memory_i, on the server, is client i's latest G_i, zero before its first active round:

        memory_i <- G_i for i in S_t
        x -= eta_g eta_l K * (1/N) sum_{all i} memory_i

    S_t: the active clients of round t. N: the number of clients. eta_g: the global learning rate.

    The server updates the sum instead of recomputing it: a client contributes the change of its memory. An empty round
    (no active clients) takes a step too. Messages per active client: one vector down, one up.

    Args:
      displacements: memory_i is eta_l K G_i, with the eta_l of the client's own round, and the step is
        x -= eta_g * (1/N) sum_{all i} memory_i. The code of FedAWE's authors does this. With a constant eta_l the
        iterates are the same.
      divide_by_seen: divide by the number of clients that were active so far instead of N, as in `FedSUM`.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> fedsum.simulate(task, MIFA(), fedsum.Cyclic(2, 1), rounds=500, local_steps=2, eta_l=0.02).x
    tensor([2.9846])
    """

    displacements: bool = False
    divide_by_seen: bool = False

    def init_server(self, x0: Tensor, first: Round) -> State:
        return {"x": x0, "sum": torch.zeros_like(x0)}

    def init_row(self, x0: Tensor) -> State:
        return {"G": torch.zeros_like(x0)}

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        return {"G": G}, {}

    def digest(self, row: State, uplink: Message, now: Round) -> tuple[Message, State]:
        latest = now.eta_l * now.K * uplink["G"] if self.displacements else uplink["G"]
        return {"change": latest - row["G"]}, {"G": latest}

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        memory = server["sum"] + total["change"]
        stride = now.eta_g if self.displacements else now.stride
        return {"x": server["x"] - stride / now.divisor(self.divide_by_seen) * memory, "sum": memory}
