from dataclasses import dataclass

from ..base.checks import probability, set_fields
from .fedopt import FedOpt
from .server_optimisers import SGD


@dataclass(frozen=True)
class FedAvgM(FedOpt):
    """FedAvgM (Hsu et al., 2019): FedAvg with momentum on the server.

    An active client takes K steps of SGD from the server's model x, with the local learning rate eta_l. It sends G_i,
    the mean of its K gradients. u is the mean displacement of the active clients, m the server's momentum, zero at
    first:

        u = eta_l K * mean_{S_t} G_i
        m <- beta m + u
        x -= eta_g m

    S_t: the active clients of round t. eta_g: the global learning rate.

    FedAvgM is biased towards clients that are active often. An empty round (no active clients) changes nothing.
    Messages per active client: one vector down, one up.

    Args:
      beta: the share of m that remains after a round.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> run = fedsum.simulate(
    ...     task, FedAvgM(), fedsum.Cyclic(2, 1), rounds=500, local_steps=2, eta_l=0.02, eta_g=1.0
    ... )
    >>> run.x
    tensor([3.0318])
    """

    beta: float = 0.9

    def __post_init__(self) -> None:
        set_fields(self, beta=probability("beta", self.beta, zero=True, one=False))

    def optimiser(self, lr: float) -> SGD:
        return SGD(lr, momentum=self.beta)
