from dataclasses import dataclass

from .fedopt import FedOpt
from .server_optimisers import Adagrad


@dataclass(frozen=True)
class FedAdagrad(FedOpt):
    """FedAdagrad (Reddi et al., 2021): FedAvg with Adagrad on the server.

    An active client takes K steps of SGD from the server's model x, with the local learning rate eta_l. It sends G_i,
    the mean of its K gradients. u is the mean displacement of the active clients. m and v are the first and the second
    moment of u, on the server:

        u = eta_l K * mean_{S_t} G_i
        m <- beta1 m + (1 - beta1) u
        v <- v + u^2
        x -= eta_g m / (sqrt(v) + tau)

    S_t: the active clients of round t. eta_g: the global learning rate.

    In the first round a parameter moves by about eta_g, later by less, as v grows. There is no bias correction of m and
    v, as in the paper. FedAdagrad is biased towards clients that are active often. An empty round (no active clients)
    changes nothing. Messages per active client: one vector down, one up.

    Args:
      beta1: the share of m that remains after a round; 0 (no momentum) as in the paper.
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
