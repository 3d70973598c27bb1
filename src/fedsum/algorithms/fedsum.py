from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class FedSUM(Algorithm):
    """FedSUM, with local steps (Algorithm 2 of the FedSUM paper): not biased towards clients that are active often.

    Client i stores h_i, the mean of its K gradients in its last active round, zero before its first. The server stores
    y, the sum of all h_i, and sends it with its model x.

    An active client takes K steps from x, with step size eta_l/N along g + (y - h_i): its own gradient g plus the sum
    of the other clients' latest mean gradients. With G_i the mean of its K gradients, it sends the change delta_i:

        delta_i = G_i - h_i,  h_i <- G_i
        y += sum_{S_t} delta_i,  x -= eta_g eta_l K / N * y

    S_t: the active clients of round t. N: the number of clients. eta_l, eta_g: the local and the global learning rate.

    An empty round (no active clients) moves x along y. Messages per active client: two vectors down, one up.

    Args:
      divide_by_seen: divide by M, the number of clients that were active so far, instead of N, also in the local steps
        (there M is that of the previous round, at least 1). While many clients were never active, y is a sum over few
        clients, and y/N a short step. With this option the step has full length from the first round on. Once every
        client was active, it is the paper's algorithm.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> run = fedsum.simulate(task, FedSUM(), fedsum.Biased(2, group=1), rounds=500, local_steps=2, eta_l=0.02)
    >>> run.x
    tensor([3.0000])
    """

    changes: ClassVar[Mapping[str, str]] = {"delta": "h"}

    divide_by_seen: bool = False

    def init_server(self, x0: Tensor, first: Round) -> State:
        return {"x": x0, "y": torch.zeros_like(x0)}

    def init_client(self, x0: Tensor) -> State:
        return {"h": torch.zeros_like(x0)}

    def downlink(self, server: State, now: Round) -> Message:
        return {"x": server["x"], "y": server["y"]}

    def plan(self, client: State, down: Message, now: Round) -> LocalPlan:
        n = now.divisor(self.divide_by_seen)
        return LocalPlan(start=down["x"], step=now.eta_l / n, correction=down["y"] - client["h"])

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        return {"delta": G - client["h"]}, {"h": G}

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        y = server["y"] + total["delta"]
        return {"x": server["x"] - now.stride / now.divisor(self.divide_by_seen) * y, "y": y}
