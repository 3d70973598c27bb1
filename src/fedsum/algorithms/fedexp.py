from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from ..base.checks import InputError, real, set_fields
from .base import Algorithm, LocalPlan, Message, Round, State


@dataclass(frozen=True)
class FedExP(Algorithm):
    """FedExP (Jhunjhunwala et al., 2023): FedAvg with a global learning rate that is computed in every round.

    An active client takes K steps of SGD from the server's model x, with the local learning rate eta_l. It sends G_i,
    the mean of its K gradients. D_i is its displacement and eta the computed rate, which is large if the
    displacements of the clients have different directions:

        D_i = eta_l K G_i
        eta = max(1, mean_{S_t} ||D_i||^2 / (2 (||mean_{S_t} D_i||^2 + epsilon)))
        x -= eta * mean_{S_t} D_i

    S_t: the active clients of round t.

    The setting eta_g, the global learning rate, must be 1. FedExP is biased towards clients that are active often. An
    empty round (no active clients) changes nothing. Messages per active client: one vector down; one vector and one
    scalar, ||G_i||^2, up.

    Args:
      epsilon: added to the squared norm of the mean displacement. The authors' code adds epsilon times the number of
        active clients, with epsilon 0.001 or 0.1, and lowers epsilon in proportion to eta_l squared.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> fedsum.simulate(task, FedExP(), fedsum.Cyclic(2, 1), rounds=500, local_steps=2, eta_l=0.02).x
    tensor([3.0755])
    """

    unequal_steps: ClassVar[Literal["means", "displacements", "refused"]] = "displacements"

    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        set_fields(self, epsilon=real("epsilon", self.epsilon, above=0))

    def check(self, first: Round) -> None:
        if first.eta_g != 1:
            raise InputError("eta_g", first.eta_g, "1: FedExP computes the global learning rate itself")

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        return {"G": G, "square": G.square().sum(-1)}, {}

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        if m == 0:
            return server
        moved = now.eta_l * now.K
        D, squares = moved * (total["G"] / m), moved**2 * (total["square"] / m)
        eta = (squares / (2 * (D.square().sum() + self.epsilon))).clamp(min=1)
        return {"x": server["x"] - eta * D}
