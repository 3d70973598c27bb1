from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..base.checks import InputError, set_fields
from .base import Algorithm, Message, Round, State
from .fedavg import FedAvg
from .server_optimisers import Adam, ServerOptimiser
from .wrapper import Wrapper

_PREFIX = "opt_"
"""of the optimiser's vectors in the server state"""


@dataclass(frozen=True)
class ServerOpt(Wrapper):
    """A server optimiser (Reddi et al., 2021) on top of another algorithm, such as FedSUM with Adam.

    The algorithm's change of the server's model x is a pseudo-gradient u for the optimiser:

        x' = the algorithm's next x
        u = x - x'
        the optimiser takes a step along u

    The messages, the local steps and the clients' states are the algorithm's. The algorithm uses the global learning
    rate eta_g, the optimiser its own learning rate `lr`. If a round is empty (no active clients) and the algorithm does
    not move x, the optimiser does nothing. `ServerOpt(algorithm, SGD())` is the algorithm itself.
    `ServerOpt(FedAvg(), Adam(lr))` with eta_g = 1 is `FedAdam` with eta_g = lr.

    Algorithms that compute with the distance that x has moved are refused: FedSUM-CR, FedAWE, AmplifiedFedAvg and
    AmplifiedSCAFFOLD.

    Args:
      algorithm: the algorithm to which the optimiser is added.
      optimiser: `SGD`, `Adagrad`, `Yogi` or `Adam`.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])  # optimum (1*0 + 3*4) / 4 = 3
    >>> adaptive = ServerOpt(fedsum.FedSUM(), fedsum.SGD(momentum=0.5))
    >>> adaptive.label
    'FedSUM + SGD'
    >>> fedsum.simulate(task, adaptive, fedsum.Biased(2, group=1), rounds=500, local_steps=2, eta_l=0.02).x
    tensor([3.0000])
    """

    label: ClassVar[str] = "ServerOpt"

    algorithm: Algorithm = FedAvg()  # noqa: RUF009  # frozen
    optimiser: ServerOptimiser = Adam()  # noqa: RUF009  # frozen

    def __post_init__(self) -> None:
        super().__post_init__()
        inner = self.algorithm
        if not isinstance(self.optimiser, ServerOptimiser):
            raise InputError("optimiser", self.optimiser, "a server optimiser: SGD(), Adagrad(), Yogi() or Adam()")
        if isinstance(inner, ServerOpt):
            raise InputError("algorithm", inner, "has a server optimiser already")
        if inner.reads_movement:
            raise InputError("algorithm", inner, f"{inner.label} uses how far x moved, which an optimiser would change")
        set_fields(self, label=f"{inner.label} + {type(self.optimiser).__name__}")

    def init_server(self, x0: Tensor, first: Round) -> State:
        state = self.optimiser.init(x0)
        return {**self.algorithm.init_server(x0, first), **{_PREFIX + name: value for name, value in state.items()}}

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        own = {name: value for name, value in server.items() if not name.startswith(_PREFIX)}
        state = {name.removeprefix(_PREFIX): value for name, value in server.items() if name.startswith(_PREFIX)}
        merged, x = self.algorithm.merge(own, total, m, now), server["x"]
        if m == 0 and torch.equal(merged["x"], x):
            return {**server, **merged}
        change, state = self.optimiser.step(state, x - merged["x"])
        return {**merged, "x": x - change, **{_PREFIX + name: value for name, value in state.items()}}
