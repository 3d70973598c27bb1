from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from ..base.checks import integer, set_fields
from .base import Algorithm, LocalPlan, Message, Round, State
from .intervals import interval_weight, no_intervals


@dataclass(frozen=True)
class FedAU(Algorithm):
    """FedAU (Wang & Ji, 2024): FedAvg with a larger weight for clients that are seldom active, estimated during
    training.

    An active client takes K steps of SGD from the server's model x, with the local learning rate eta_l. It sends G_i,
    the mean of its K gradients. The server's step:

        x -= eta_g eta_l K * (1/N) sum_{S_t} w_i G_i

    S_t: the active clients of round t. N: the number of clients. eta_g: the global learning rate. w_i: the mean of
    client i's recorded participation intervals, or 1 before the first. An interval is the number of rounds from one
    active round of the client to its next, at most `cutoff`: after `cutoff` rounds of absence an interval is recorded
    and a new one begins. w_i does not yet contain the interval that ends in the current round.

    The server stores each client's last active round, and the count and the sum of its intervals. Absent clients cost
    no time. An empty round (no active clients) changes nothing. Messages per active client: one vector down, one up.

    Args:
      cutoff: the longest interval, in rounds; the FedAU paper calls it K and uses 50.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> fedsum.simulate(task, FedAU(), fedsum.Cyclic(2, 1), rounds=500, local_steps=2, eta_l=0.02).x
    tensor([3.0770])
    """

    unequal_steps: ClassVar[Literal["means", "displacements", "refused"]] = "displacements"

    cutoff: int = 50

    def __post_init__(self) -> None:
        set_fields(self, cutoff=integer("cutoff", self.cutoff, low=1))

    def init_row(self, x0: Tensor) -> State:
        return no_intervals(x0)

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        return {"G": G}, {}

    def digest(self, row: State, uplink: Message, now: Round) -> tuple[Message, State]:
        G = uplink["G"]
        w, row = interval_weight(row, now.t, self.cutoff)
        return {"wG": w.to(G.dtype)[..., None] * G}, row

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        return {"x": server["x"] - now.stride / now.N * total["wG"]}
