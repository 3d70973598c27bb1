from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class FedBuff(Algorithm):
    """FedBuff (Nguyen et al., 2022): asynchronous FedAvg with a buffer; stale updates have a smaller weight.

    A client takes K steps of SGD from the model that it was sent, with the local learning rate eta_l. G_i is the mean
    of its K gradients. When the updates of m clients have arrived, the buffer is full and the server's model x takes a
    step:

        w_i = 1 / sqrt(1 + t - t_i)
        x -= eta_g eta_l K * (1/m) sum_{S_t} w_i G_i

    t: the number of the server step. S_t: the m clients whose updates it merges. t_i: the server step at which client i
    was sent its model. t - t_i is the staleness of its update. eta_g: the global learning rate.

    The sum is divided by m, not by the sum of the weights. Use it with the schedule `fedsum.Asynchronous`. If all
    clients train from the current model, it is FedAvg. FedBuff is biased towards clients that are active often. A step
    without updates changes nothing. Messages per active client: one vector and one scalar (t_i) down, one vector up.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> arrivals = fedsum.Asynchronous(2, fedsum.Devices(seconds_per_step=[1.0, 2.5]), buffer=1)
    >>> fedsum.simulate(task, FedBuff(), arrivals, rounds=500, local_steps=2, eta_l=0.02).x
    tensor([1.6991])
    """

    unequal_steps: ClassVar[Literal["means", "displacements", "refused"]] = "displacements"

    def downlink(self, server: State, now: Round) -> Message:
        return {"x": server["x"], "t": torch.full((), now.t, device=server["x"].device)}

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        w = (1 + now.t - down["t"]).to(G.dtype).rsqrt()
        return {"wG": w[..., None] * G}, {}

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        if m == 0:
            return server
        return {"x": server["x"] - now.stride * (total["wG"] / m)}
