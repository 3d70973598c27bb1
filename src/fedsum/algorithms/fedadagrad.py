from dataclasses import dataclass

from .fedopt import FedOpt
from .server_optimisers import Adagrad


@dataclass(frozen=True)
class FedAdagrad(FedOpt):
    """FedAdagrad (Reddi et al., 2021): FedAvg with Adagrad on the server.

        u = eta_l K * mean_{S_t} G_i;   m <- beta1 m + (1 - beta1) u;   v <- v + u^2;   x -= eta_g m / (sqrt(v) + tau)

    S_t: the active clients of round t. G_i: the mean of client i's K gradients.
    Biased towards clients that are active often. An empty round (no active clients) changes nothing. One vector
    down, one up. No bias correction, as in the paper. A parameter moves by about eta_g per round: 1 is far too large.

    Args:
      beta1: the share of m that remains after a round; 0 as in the paper.
      tau: added to sqrt(v); v starts at tau^2.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> run = fedsum.simulate(
    ...     task, FedAdagrad(), fedsum.Uniform(2, 2), rounds=500, local_steps=2, eta_l=0.02, eta_g=0.5
    ... )
    >>> run.x
    tensor([2.9846])
    """

    beta1: float = 0.0
    tau: float = 1e-3

    def optimiser(self, lr: float) -> Adagrad:
        return Adagrad(lr, beta1=self.beta1, tau=self.tau)
