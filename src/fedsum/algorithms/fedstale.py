from dataclasses import dataclass

import torch
from torch import Tensor

from ..base.checks import integer, probability, set_fields
from .base import Algorithm, LocalPlan, Message, Round, State
from .intervals import interval_weight, no_intervals


@dataclass(frozen=True)
class FedStale(Algorithm):
    """FedStale (Rodio & Neglia, 2024): absent clients are replaced by a share beta of their latest gradients.

        x -= eta_g eta_l K * ((1/N) sum_{S_t} w_i (G_i - beta h_i) + beta hbar);   h_i <- G_i,  hbar = (1/N) sum h_i

    S_t: the active clients of round t. G_i: the mean of client i's K gradients.
    h_i: client i's latest mean gradient, in the server's memory. The step uses the old h_i and hbar. w_i estimates
    1/p_i, with p_i the client's rate of participation, from its participation intervals as in FedAU. beta = 0 is
    FedAU; beta = 1 is FedVARP with the weights w_i/N instead of 1/|S_t|. An empty round (no active clients) moves x
    along beta hbar. One vector down, one up.

    Args:
      beta: the weight of old gradients, from 0 to 1.
      cutoff: the longest interval, in rounds.

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
