"""Hybrids of FedSUM and SCAFFOLD, to find which of their two differences matters."""

from dataclasses import dataclass

from torch import Tensor

from ..algorithms import SCAFFOLD, LocalPlan, Message, Round, State
from ..base.checks import InputError

_METHODS = ("FedSUM", "SCAFFOLD")


@dataclass(frozen=True)
class Between(SCAFFOLD):
    """FedSUM or SCAFFOLD, chosen separately for the local steps and for the server's step.

    The two methods store the same vectors (FedSUM's y is N c, its h_i is c_i) and differ only in these two steps. c and
    c_i are SCAFFOLD's control variates, g a local gradient, S_t the active clients of round t, S = |S_t|, and
    d_i = G_i - c_i with G_i the mean of client i's K gradients.

    Args:
      steps: local steps of length eta_l/N along g + N c - c_i ("FedSUM"), or of length eta_l along g + c - c_i
        ("SCAFFOLD").
      server: the server's step along the new c, in which each d_i has weight 1/N ("FedSUM"), or along
        mean_{S_t} d_i + c with the old c, in which each d_i has weight 1/S ("SCAFFOLD").
    """

    steps: str
    server: str

    def __post_init__(self) -> None:
        for field in ("steps", "server"):
            if getattr(self, field) not in _METHODS:
                raise InputError(field, getattr(self, field), " or ".join(map(repr, _METHODS)))

    def plan(self, client: State, down: Message, now: Round) -> LocalPlan:
        if self.steps == "SCAFFOLD":
            return super().plan(client, down, now)
        return LocalPlan(start=down["x"], step=now.eta_l / now.N, correction=now.N * down["c"] - client["c"])

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        if self.server == "SCAFFOLD":
            return super().merge(server, total, m, now)
        c: Tensor = server["c"] + total["d"] / now.N
        return {"x": server["x"] - now.stride * c, "c": c}
