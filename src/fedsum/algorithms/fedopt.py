"""What FedAvgM, FedAdagrad, FedYogi and FedAdam have in common."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from .base import Algorithm, LocalPlan, Message, Round, State
from .server_optimisers import ServerOptimiser


@dataclass(frozen=True)
class FedOpt(Algorithm):
    """FedOpt (Reddi et al., 2021): the mean displacement of the active clients, u, is a gradient for the server.

    u = eta_l K * mean_{S_t} G_i;   the optimiser takes a step along u, with the learning rate eta_g
    """

    unequal_steps: ClassVar[Literal["means", "displacements", "refused"]] = "displacements"

    def __post_init__(self) -> None:
        self.optimiser(1.0)  # checks the fields

    @abstractmethod
    def optimiser(self, lr: float) -> ServerOptimiser:
        """The server's optimiser with that learning rate."""

    def init_server(self, x0: Tensor, first: Round) -> State:
        return {"x": x0, **self.optimiser(first.eta_g).init(x0)}

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        return {"G": G}, {}

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        if m == 0:
            return server
        change, state = self.optimiser(now.eta_g).step(server, now.eta_l * now.K * (total["G"] / m))
        return {"x": server["x"] - change, **state}
