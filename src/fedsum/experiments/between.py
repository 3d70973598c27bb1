"""Half FedSUM, half SCAFFOLD: which half makes the difference."""

from dataclasses import dataclass

from torch import Tensor

from ..algorithms import SCAFFOLD, LocalPlan, Message, Round, State
from ..base.checks import InputError

_ENDS = ("FedSUM", "SCAFFOLD")


@dataclass(frozen=True)
class Between(SCAFFOLD):
    """The two methods keep the same memory, y = N c, and differ in two places only; here each is chosen by itself.

    Args:
      steps: local steps, of length eta_l/N along g + N c - c_i ("FedSUM") or eta_l along g + c - c_i ("SCAFFOLD").
      server: the server's step, along c as it is after the round ("FedSUM"), where what is new counts 1/N, or along
        mean_{S_t} d_i + c as it was before ("SCAFFOLD"), where it counts 1/S.
    """

    steps: str
    server: str

    def __post_init__(self) -> None:
        for field in ("steps", "server"):
            if getattr(self, field) not in _ENDS:
                raise InputError(field, getattr(self, field), " or ".join(map(repr, _ENDS)))

    def plan(self, client: State, down: Message, now: Round) -> LocalPlan:
        if self.steps == "SCAFFOLD":
            return super().plan(client, down, now)
        return LocalPlan(start=down["x"], step=now.eta_l / now.N, correction=now.N * down["c"] - client["c"])

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        if self.server == "SCAFFOLD":
            return super().merge(server, total, m, now)
        c: Tensor = server["c"] + total["d"] / now.N
        return {"x": server["x"] - now.stride * c, "c": c}
