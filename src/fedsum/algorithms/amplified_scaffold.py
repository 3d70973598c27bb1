from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..base.checks import integer, set_fields
from .amplified_fedavg import amplified
from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class AmplifiedSCAFFOLD(Algorithm):
    """Amplified SCAFFOLD (Crawshaw & Liu, 2024): SCAFFOLD whose progress over a window of P rounds is multiplied by
    eta_g.

    Client i has a control variate c_i, the server has c, the mean of all c_i. They start at zero and are constant
    within a window. An active client takes K steps from the server's model x, with step size eta_l along g + (c - c_i),
    with g its own gradient. With G_i the mean of its K gradients and d_i = G_i - c_i:

        x -= eta_l K * (mean_{S_t} d_i + c)
        after every P rounds: x <- w + eta_g (x - w),  w <- x
            c_i <- a_i for the clients of the window,  c = mean c_i

    S_t: the active clients of round t. w: x at the start of the window. a_i: the mean of G_i over client i's rounds in
    the window. eta_l: the local learning rate. eta_g, the global learning rate, is the amplification; within a window
    it is not used.

    A client sends d_i and e_i, the change of a_i. It sets c_i <- a_i in its next active round after the window, so the
    server need not reach absent clients. At the end of the window the server adds 1/N times the sum of all e_i to c,
    with N the number of clients. An empty round (no active clients) takes no step, but may end a window. Messages per
    active client: two vectors down, two up. With P = 1 it is SCAFFOLD.

    Args:
      period: P, rounds per window. Choose it so that every client has a turn in a window: for the schedule `Periodic`,
        groups * dwell.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> run = fedsum.simulate(
    ...     task, AmplifiedSCAFFOLD(period=2), fedsum.Cyclic(2, 1), rounds=500, local_steps=2, eta_l=0.02, eta_g=1.5
    ... )
    >>> run.x
    tensor([3.0000])
    """

    reads_movement: ClassVar[bool] = True

    period: int = 20

    def __post_init__(self) -> None:
        set_fields(self, period=integer("period", self.period, low=1))

    def init_server(self, x0: Tensor, first: Round) -> State:
        return {"x": x0, "w": x0, "c": torch.zeros_like(x0), "pending": torch.zeros_like(x0)}

    def init_client(self, x0: Tensor) -> State:
        none = torch.tensor(0, device=x0.device)
        # n: the client's rounds in its latest window, whose number is `window`.
        return {"c": torch.zeros_like(x0), "a": torch.zeros_like(x0), "n": none, "window": none - 1}

    def downlink(self, server: State, now: Round) -> Message:
        return {"x": server["x"], "c": server["c"]}

    def plan(self, client: State, down: Message, now: Round) -> LocalPlan:
        return LocalPlan(start=down["x"], step=now.eta_l, correction=down["c"] - self._current(client, now)["c"])

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        client = self._current(client, now)
        c, a, n = client["c"], client["a"], client["n"] + 1
        # In the first round of a window a is still the previous window's mean, with n = 1: the mean is G.
        mean = a + (G - a) / n.to(G.dtype)[..., None]
        uplink = {"d": G - c, "e": mean - a}
        return uplink, {**client, "a": mean, "n": n}

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        x, c, pending = server["x"], server["c"], server["pending"]
        if m:
            x = x - now.eta_l * now.K * (total["d"] / m + c)
            pending = pending + total["e"]
        if (now.t + 1) % self.period == 0:
            c, pending = c + pending / now.N, torch.zeros_like(pending)
        return {**amplified(x, server["w"], self.period, now), "c": c, "pending": pending}

    def _current(self, client: State, now: Round) -> State:
        """The client's state in the window of this round: in a new window, c_i <- a_i."""
        window = torch.full_like(client["window"], now.t // self.period)
        new = client["window"] != window
        return {
            "c": torch.where(new[..., None], client["a"], client["c"]),
            "a": client["a"],
            "n": torch.where(new, 0, client["n"]),
            "window": window,
        }
