from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..base.checks import real, set_fields
from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class FedAWE(Algorithm):
    """FedAWE (Xiang et al., 2024): a client's update is multiplied by the number of rounds since it was last active.

    Client i stores x_i, the model that it received after its last active round, and last_i, that round. Before its
    first active round x_i is the initial model and last_i = -1. An active client takes K steps of SGD from x_i, with
    the local learning rate eta_l. G_i is the mean of its K gradients. It multiplies ("echoes") its update by t -
    last_i, the number of rounds since it was last active, and sends the model x_i':

        x_i' = x_i - eta_g (t - last_i) eta_l K G_i
        x = mean_{S_t} x_i'
        x_i <- x,  last_i <- t  for i in S_t

    x: the server's model. S_t: the active clients of round t. eta_g: the global learning rate.

    The new x is sent to the active clients after the merge. An empty round (no active clients) changes no model, but
    the multipliers grow. Messages per active client: one vector down, one up.

    The authors evaluate the mean of all N clients' models, and so does the simulator by default.

    Args:
      clip: largest norm of the mean of the echoed updates. The authors' code uses 0.5; their Algorithm 1 does not
        clip. With `clip`, a client sends x_i and its echoed update (t - last_i) eta_l K G_i: two vectors up.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> fedsum.simulate(task, FedAWE(), fedsum.Uniform(2, 2), rounds=500, local_steps=2, eta_l=0.02).x
    tensor([2.9846])
    """

    clip: float | None = None

    eval_model: ClassVar[Literal["server", "clients"]] = "clients"
    reads_movement: ClassVar[bool] = True

    unequal_steps: ClassVar[Literal["means", "displacements", "refused"]] = "displacements"

    def __post_init__(self) -> None:
        if self.clip is not None:
            set_fields(self, clip=real("clip", self.clip, above=0))

    def init_client(self, x0: Tensor) -> State:
        return {"x": x0, "last": torch.tensor(-1, device=x0.device)}

    def downlink(self, server: State, now: Round) -> Message:
        return {}

    def plan(self, client: State, down: Message, now: Round) -> LocalPlan:
        return LocalPlan(start=client["x"], step=now.eta_l)

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        gap = (now.t - client["last"]).to(G.dtype)[..., None]
        echo = gap * (now.eta_l * now.K) * G
        if self.clip is None:
            return {"x": client["x"] - now.eta_g * echo}, client
        return {"x": client["x"], "echo": echo}, client

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        if m == 0:
            return server
        x = total["x"] / m
        if self.clip is not None:
            echo = total["echo"] / m
            x = x - now.eta_g * echo * (self.clip / echo.norm().clamp(min=self.clip))
        return {"x": x}

    def farewell(self, server: State, now: Round) -> Message:
        return {"x": server["x"]}

    def receive(self, client: State, message: Message, now: Round) -> State:
        return {
            "x": message["x"].expand_as(client["x"]),
            "last": torch.full_like(client["last"], now.t),
        }
