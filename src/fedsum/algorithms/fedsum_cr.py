from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class FedSUMCR(Algorithm):
    """FedSUM-CR, the communication-reduced version of FedSUM: one vector down, not two (Algorithm 3 of the FedSUM
    paper).

    In FedSUM the server sends its model x and y, the sum of all clients' latest mean gradients. Here it sends x and one
    scalar. In place of y, a client uses the average of y over the rounds since it was last active. It computes this
    average from the distance that x has moved.

    Let z_i be the model that client i received in its last active round. Over the rounds p since then, x has moved by

        z_i - x = sum_p eta_g eta_l(p) K/N * y^(p)

    y^(p): y after round p. eta_l(p): the local learning rate of round p. eta_g: the global learning rate. K: the number
    of local steps. N: the number of clients.

    The server stores E, the running sum of the factors eta_g eta_l(p) K/N, and sends it with x. E_i is the value of E
    that the client received with z_i, and h_i is the client's latest mean gradient. The client takes K steps from x. A
    step is eta_l/N times g plus the correction, with g its own gradient:

        correction = (z_i - x) / (E - E_i) - h_i,   then z_i <- x, E_i <- E

    G_i is the mean of these K gradients. The uplink delta_i and the server's step are FedSUM's:

        delta_i = G_i - h_i,  h_i <- G_i
        y += sum_{S_t} delta_i,  x -= eta_g eta_l K / N * y

    S_t: the active clients of round t.

    At the start z_i is the initial model, h_i = 0, E_i = 0 and E = eta_g eta_l(0) K/N.

    The average is exact for any schedule eta_l(t). The paper prints the divisor eta_g eta_l K/N * (t - a_i), with a_i
    client i's last active round. The two divisors are equal for a constant eta_l only. An empty round (no active
    clients) moves x along y. Messages per active client: one vector and one scalar down, one vector up.

    Args:
      printed_average: use the paper's formula, with the current eta_l and t - a_i. It is refused for asynchronous
        training, where t is the arrival of an update and x is older.
      divide_by_seen: divide by M, the number of clients that were active so far, instead of N, as in `FedSUM`. z_i - x
        is then the sum of eta_g eta_l(p) K * y^(p)/M^(p), so (z_i - x) / (E - E_i) is N times the average of y/M. It is
        multiplied by M/N with the current M.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> run = fedsum.simulate(task, FedSUMCR(), fedsum.Biased(2, group=1), rounds=500, local_steps=2, eta_l=0.02)
    >>> run.x
    tensor([3.0000])
    """

    label: ClassVar[str] = "FedSUM-CR"
    changes: ClassVar[Mapping[str, str]] = {"delta": "h"}
    reads_movement: ClassVar[bool] = True

    printed_average: bool = False
    divide_by_seen: bool = False

    def init_server(self, x0: Tensor, first: Round) -> State:
        server = {"x": x0, "y": torch.zeros_like(x0)}
        if not self.printed_average:
            # The paper's round -1, in which x does not move. Without it, a client active in round 0 would compute 0/0.
            server["E"] = torch.tensor(first.stride / first.N, dtype=torch.float64, device=x0.device)
        return server

    def init_client(self, x0: Tensor) -> State:
        client = {"h": torch.zeros_like(x0), "z": x0}
        if self.printed_average:
            client["a"] = torch.tensor(-1, device=x0.device)
        else:
            client["E"] = torch.tensor(0.0, dtype=torch.float64, device=x0.device)
        return client

    def downlink(self, server: State, now: Round) -> Message:
        return {name: server[name] for name in ("x", "E") if name in server}

    def plan(self, client: State, down: Message, now: Round) -> LocalPlan:
        x, h, z = down["x"], client["h"], client["z"]
        # E grows without bound while E - E_i may stay small: subtract in float64, then cast.
        printed = self.printed_average
        divisor = now.stride / now.N * (now.t - client["a"]).double() if printed else down["E"] - client["E"]
        n = now.divisor(self.divide_by_seen)
        average = n / now.N * ((z - x) / divisor.to(x.dtype)[..., None])
        return LocalPlan(start=x, step=now.eta_l / n, correction=average - h)

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        next_client = {"h": G, "z": down["x"].expand_as(G)}
        if self.printed_average:
            next_client["a"] = torch.full_like(client["a"], now.t)
        else:
            next_client["E"] = down["E"].expand_as(client["E"])
        return {"delta": G - client["h"]}, next_client

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        y = server["y"] + total["delta"]
        merged = {"x": server["x"] - now.stride / now.divisor(self.divide_by_seen) * y, "y": y}
        if not self.printed_average:
            merged["E"] = server["E"] + now.stride / now.N
        return merged

    @property
    def only_synchronous(self) -> str:
        return "printed_average counts rounds up to the arrival of an update; use False" if self.printed_average else ""
