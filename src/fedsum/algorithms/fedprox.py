from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from ..base.checks import real, set_fields
from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class FedProx(Algorithm):
    """FedProx (Li et al., 2020): FedAvg with a proximal term in every client's loss, mu/2 ||z - x||^2.

    z is the client's model and x the server's. An active client takes K steps from x, with step size eta_l along g + mu
    (x_k - x): its gradient g at its model x_k after k steps, and a pull towards x. With D_i = x - x_K, the displacement
    of client i after its K steps, the server's step is

        x -= eta_g * mean_{S_t} D_i

    S_t: the active clients of round t. eta_l, eta_g: the local and the global learning rate.

    With mu = 0 it is FedAvg. FedProx is biased towards clients that are active often. An empty round (no active
    clients) changes nothing. Messages per active client: one vector down, one up.

    Args:
      mu: the weight of the proximal term. The paper uses 0.001, 0.01, 0.1 and 1.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> fedsum.simulate(task, FedProx(), fedsum.Cyclic(2, 1), rounds=500, local_steps=2, eta_l=0.02).x
    tensor([3.0755])
    """

    unequal_steps: ClassVar[Literal["means", "displacements", "refused"]] = "displacements"

    mu: float = 0.01

    def __post_init__(self) -> None:
        set_fields(self, mu=real("mu", self.mu, low=0))

    def plan(self, client: State, down: Message, now: Round) -> LocalPlan:
        return LocalPlan(start=down["x"], step=now.eta_l, pull=self.mu, decay=1 - now.eta_l * self.mu)

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        return {"D": now.eta_l * now.K * G}, {}

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        if m == 0:
            return server
        return {"x": server["x"] - now.eta_g * (total["D"] / m)}
