from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..base.checks import InputError, probability, real, set_fields
from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class FedAsync(Algorithm):
    """FedAsync (Xie et al., 2019): each arriving model is averaged into the server's model; stale models weigh less.

    A client takes K steps of SGD from the model x^(t_i) that it was sent at server step t_i, with the local learning
    rate eta_l. G_i is the mean of its K gradients and x_i its model after these steps. a_i is the weight of x_i in the
    server's model x:

        x_i = x^(t_i) - eta_l K G_i
        a_i = alpha (1 + t - t_i)^-power
        x <- (1 - a_i) x + a_i x_i

    t: the number of the server step. t - t_i is the staleness of the client's model.

    Use it with the schedule `fedsum.Asynchronous` and buffer = 1. If m models arrive in one server step, x moves by the
    mean of the m changes a_i (x_i - x). If all clients train from the current model, it is FedAvg with the global
    learning rate eta_g = alpha. The setting eta_g must be 1. FedAsync is biased towards clients that are active often.
    A step without updates changes nothing. Messages per active client: one vector and one scalar (t_i) down, one vector
    (a_i x_i) and one scalar (a_i) up.

    Args:
      alpha: the weight of a model that is not stale, in (0, 1].
      power: how fast the weight decreases with the staleness, at least 0. With 0, all models have the weight alpha.

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
