from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ..base.checks import InputError, probability, set_fields
from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class KnownFedAvg(Algorithm):
    """FedAvg whose updates are divided by known participation probabilities (a baseline of Xiang et al., 2024).

    An active client takes K steps of SGD from the server's model x, with the local learning rate eta_l. It sends G_i,
    the mean of its K gradients. The server's step:

        x -= eta_g eta_l K * (1/N) sum_{S_t} G_i / p_i

    S_t: the active clients of round t. N: the number of clients. eta_g: the global learning rate. p_i: the probability
    that client i is active in a round.

    In expectation, the step is along the mean of all clients' G_i. FedAU estimates the probabilities instead. Uplinks
    may be summed before they reach the server if all clients have the same p. An empty round (no active clients)
    changes nothing. Messages per active client: one vector down, one up.

    Args:
      p: the probability of every client, or a list with one probability per client in the order of their ids. For the
        clients of a `Biased` schedule: `schedule.probability()`.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> schedule = fedsum.Explicit(2, [[0, 1], [0]], repeat=True)
    >>> fedsum.simulate(task, KnownFedAvg(p=[1.0, 0.5]), schedule, rounds=500, local_steps=2, eta_l=0.02).x
    tensor([2.9770])
    """

    unequal_steps: ClassVar[Literal["means", "displacements", "refused"]] = "displacements"

    p: float | Sequence[float] = 1.0

    def __post_init__(self) -> None:
        set_fields(self, p=_checked(self.p))

    def check(self, first: Round) -> None:
        if isinstance(self.p, tuple) and len(self.p) != first.N:
            raise InputError("p", self.p, f"{len(self.p)} probabilities for {first.N} clients; give one per client")

    def init_row(self, x0: Tensor) -> State:
        # `identify` replaces it: rows of all clients start alike.
        return {} if self.summable else {"p": torch.tensor(1.0, dtype=torch.float64, device=x0.device)}

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        return {"G": G}, {}

    def identify(self, row: State, clients: Tensor) -> State:
        if self.summable:
            return row
        return {"p": torch.tensor(self.p, dtype=torch.float64)[clients].to(row["p"].device)}

    def digest(self, row: State, uplink: Message, now: Round) -> tuple[Message, State]:
        if self.summable:
            return uplink, row
        G = uplink["G"]
        return {"G": G / row["p"].to(G.dtype)[..., None]}, row

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        p = self.p if isinstance(self.p, float) else 1.0  # `digest` has divided by a client's own p
        return {"x": server["x"] - now.stride / (now.N * p) * total["G"]}

    @property
    def summable(self) -> bool:
        return not isinstance(self.p, tuple)


def _checked(p: Any) -> float | tuple[float, ...]:
    try:
        values = list(p)
    except TypeError:  # a number
        return probability("p", p)
    return tuple(probability(f"p[{i}]", value) for i, value in enumerate(values))
