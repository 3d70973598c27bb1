from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..base.checks import InputError, probability, real, set_fields
from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class FedAsync(Algorithm):
    """FedAsync (Xie et al., 2019): each arriving model is mixed into the server's, a stale one with a smaller weight.

        x_i = x^(t_i) - eta_l K G_i;   a_i = alpha (1 + t - t_i)^-power;   x <- (1 - a_i) x + a_i x_i

    G_i: the mean of client i's K gradients. t_i: the server steps that were done when client i was sent its model
    x^(t_i), so t - t_i is its staleness. For `fedsum.Asynchronous` with buffer = 1. If m models arrive in one server
    step, x moves by the mean of the m changes a_i (x_i - x). If all clients train from the current model, it is FedAvg
    with eta_g = alpha. simulate()'s eta_g must be 1. Biased towards clients that are active often. An empty round (no
    active clients) changes nothing. One vector and one scalar (t_i) down, one vector and one scalar (a_i) up.

    Args:
      alpha: the weight of a model without staleness, in (0, 1].
      power: how fast the weight falls with the staleness; 0: not at all.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> arrivals = fedsum.Asynchronous(2, fedsum.Devices(seconds_per_step=[1.0, 2.5]), buffer=1)
    >>> fedsum.simulate(task, FedAsync(), arrivals, rounds=500, local_steps=2, eta_l=0.02).x
    tensor([1.5646])
    """

    unequal_steps: ClassVar[Literal["means", "displacements", "refused"]] = "displacements"

    alpha: float = 0.6
    power: float = 0.5

    def __post_init__(self) -> None:
        set_fields(self, alpha=probability("alpha", self.alpha), power=real("power", self.power, low=0))

    def check(self, first: Round) -> None:
        if first.eta_g != 1:
            raise InputError("eta_g", first.eta_g, "1: FedAsync's alpha takes its place")

    def downlink(self, server: State, now: Round) -> Message:
        return {"x": server["x"], "t": torch.full((), now.t, device=server["x"].device)}

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        staleness = (now.t - down["t"]).expand(G.shape[:-1]).to(G.dtype)
        a = self.alpha * (1 + staleness) ** -self.power
        return {"ax": a[..., None] * (down["x"] - now.eta_l * now.K * G), "a": a}, {}

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        if m == 0:
            return server
        x = server["x"]
        return {"x": x + (total["ax"] - total["a"] * x) / m}
