from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """FedAvg over the active clients (McMahan et al., 2017): the server averages the active clients' updates.

    An active client takes K steps of SGD from the server's model x, with the local learning rate eta_l. It sends G_i,
    the mean of its K gradients. The server's step:

        x -= eta_g eta_l K * mean_{S_t} G_i

    S_t: the active clients of round t. eta_g: the global learning rate.

    With eta_g = 1, the new x is the mean of the active clients' models. FedAvg is biased towards clients that are
    active often. An empty round (no active clients) changes nothing. Messages per active client: one vector down, one
    up.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> fedsum.simulate(task, FedAvg(), fedsum.Cyclic(2, 1), rounds=500, local_steps=2, eta_l=0.02).x
    tensor([3.0755])
    """

    unequal_steps: ClassVar[Literal["means", "displacements", "refused"]] = "displacements"

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        return {"G": G}, {}

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        if m == 0:
            return server
        return {"x": server["x"] - now.stride * (total["G"] / m)}
