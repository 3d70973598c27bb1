from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class FOCUS(Algorithm):
    """FOCUS (Ying et al., 2025): gradient tracking by push-pull; not biased towards clients that are active often.

    Client i stores h_i, the last of its K gradients in its last active round, zero before its first. The server stores
    y, the sum of all h_i.

    An active client takes K steps from the server's model x, with step size eta_l along g - h_i, the change of its own
    gradient g since its last active round. With L_i the last of its K gradients, computed after K - 1 steps, it sends
    delta_i:

        delta_i = L_i - h_i,  h_i <- L_i
        y += sum_{S_t} delta_i,  x -= eta_g eta_l K / N * y

    S_t: the active clients of round t. N: the number of clients. eta_l, eta_g: the local and the global learning rate.

    With eta_g = N/K the server's step is x -= eta_l y, as in the authors' code. An empty round (no active clients)
    moves x along y. Messages per active client: one vector down, one up. With K = 1 it is FedSUM-B.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> run = fedsum.simulate(task, FOCUS(), fedsum.Biased(2, group=1), rounds=500, local_steps=2, eta_l=0.02)
    >>> run.x
    tensor([3.0000])
    """

    # So that K G is the last gradient for a client with any number of steps.
    unequal_steps: ClassVar[Literal["means", "displacements", "refused"]] = "displacements"
    changes: ClassVar[Mapping[str, str]] = {"delta": "h"}

    def init_server(self, x0: Tensor, first: Round) -> State:
        return {"x": x0, "y": torch.zeros_like(x0)}

    def init_client(self, x0: Tensor) -> State:
        return {"h": torch.zeros_like(x0)}

    def plan(self, client: State, down: Message, now: Round) -> LocalPlan:
        return LocalPlan(start=down["x"], step=now.eta_l, correction=-client["h"], decay=0.0)

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        L = now.K * G  # with decay = 0 the sum of the gradients is the last one
        return {"delta": L - client["h"]}, {"h": L}

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        y = server["y"] + total["delta"]
        return {"x": server["x"] - now.stride / now.N * y, "y": y}
