from dataclasses import dataclass

import torch
from torch import Tensor

from ..base.checks import integer, probability, set_fields
from .base import Algorithm, LocalPlan, Message, Round, State
from .intervals import interval_weight, no_intervals


@dataclass(frozen=True)
class FedStale(Algorithm):
    """FedStale (Rodio & Neglia, 2024): FedAU, in which absent clients contribute beta times their latest gradients.

    An active client takes K steps of SGD from the server's model x, with the local learning rate eta_l. It sends G_i,
    the mean of its K gradients. h_i, on the server, is client i's latest G_i, zero before its first active round. hbar
    is the mean of all h_i:

        x -= eta_g eta_l K * ((1/N) sum_{S_t} w_i (G_i - beta h_i) + beta hbar)
        h_i <- G_i for i in S_t,  hbar = (1/N) sum_{all i} h_i

    S_t: the active clients of round t. N: the number of clients. eta_g: the global learning rate.

    The step uses the old h_i and hbar. w_i estimates 1/p_i from the client's participation intervals, as in FedAU; p_i
    is the share of rounds in which client i is active. beta = 0 is FedAU; beta = 1 is FedVARP with the weights w_i/N
    instead of 1/|S_t|. An empty round (no active clients) moves x along beta hbar. Messages per active client: one
    vector down, one up.

    Args:
      beta: the weight of the remembered gradients h_i, from 0 to 1.
      cutoff: the longest participation interval, in rounds.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> fedsum.simulate(task, FedStale(), fedsum.Cyclic(2, 1), rounds=500, local_steps=2, eta_l=0.02).x
    tensor([3.0301])
    """

    beta: float = 0.5
    cutoff: int = 50

    def __post_init__(self) -> None:
        beta = probability("beta", self.beta, zero=True)
        set_fields(self, beta=beta, cutoff=integer("cutoff", self.cutoff, low=1))

    def init_server(self, x0: Tensor, first: Round) -> State:
        return {"x": x0, "hbar": torch.zeros_like(x0)}

    def init_row(self, x0: Tensor) -> State:
        return {"h": torch.zeros_like(x0), **no_intervals(x0)}

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        return {"G": G}, {}

    def digest(self, row: State, uplink: Message, now: Round) -> tuple[Message, State]:
        G, h = uplink["G"], row["h"]
        w, intervals = interval_weight(row, now.t, self.cutoff)
        fresh = w.to(G.dtype)[..., None] * (G - self.beta * h)
        return {"fresh": fresh, "change": G - h}, {"h": G, **intervals}

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        hbar = server["hbar"]
        x = server["x"] - now.stride * (total["fresh"] / now.N + self.beta * hbar)
        return {"x": x, "hbar": hbar + total["change"] / now.N}
