"""The algorithm interface: pure functions on flat vectors around one shared local loop.

    server --downlink--> message --plan--> LocalPlan --[engine: K gradients]--> G
    server <---merge---- total of contributions <--digest-- uplink <--report---- G

Symbols: x the server's model, x0 the initial model, N clients, K local steps, eta_l and eta_g the local and global
learning rates, S_t the active clients of round t, G_i the mean of client i's K gradients in a round.

Every function is written with broadcasting. The same code serves one client on its own machine (vectors `[d]`,
scalars `[]`) and a stacked cohort of S clients in the simulator (`[S, d]` and `[S]`). A message from the server is the
same for all clients of a cohort (`[d]`), unless they train asynchronously (`[S, d]`). State and messages are plain
dicts of named tensors, so that they are serialised, checkpointed and counted without further code.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

State = dict[str, Tensor]
Message = dict[str, Tensor]


@dataclass(frozen=True)
class Round:
    """The constants of a round, known to the server and to every client.

    >>> now = Round(t=0, N=10, K=5, eta_l=0.1, eta_g=2.0)
    >>> now.stride  # eta_g eta_l K
    1.0
    """

    t: int
    """the round, counted from 0"""
    N: int
    """clients in the federation, active or not"""
    K: float
    """local steps; if clients take different numbers of steps, their mean over all clients"""
    eta_l: float
    """local learning rate of this round"""
    eta_g: float
    """global learning rate"""
    seen: int = 0
    """clients that the server has merged: before this round in `downlink`, `plan`, `report` and `digest`; including
    this round's clients in `merge` and `farewell`"""

    @property
    def stride(self) -> float:
        """eta_g * eta_l * K: the server's step size along a mean gradient."""
        return self.eta_g * self.eta_l * self.K

    def divisor(self, by_seen: bool) -> int:
        """N, or the number of clients seen so far (at least 1); the two are equal once every client was active.

        >>> Round(t=0, N=10, K=5, eta_l=0.1, eta_g=2.0, seen=4).divisor(by_seen=True)
        4
        """
        return max(1, self.seen) if by_seen else self.N


@dataclass(frozen=True)
class LocalPlan:
    """A client's K local steps: where they start, their size and correction, and how gradients are summed.

        x_0 = start;   x_{k+1} = x_k - step * (g_k + correction + pull * (x_k - start)),   g_k: the gradient at x_k
        total = 0;     total <- decay * total + g_k;                                       G = total / K

    With `decay` = 1, G is the mean gradient. With `decay` = 0, K G is the last gradient. With
    `decay` = rho = 1 - step * pull, the displacement is start - x_K = step * (K G + r * correction), where
    r = 1 + rho + ... + rho^(K-1): no two models are subtracted.

    >>> import torch
    >>> plan = LocalPlan(start=torch.zeros(2), step=0.1)
    >>> plan.correction is None, plan.decay  # FedAvg's plan: no correction, the mean gradient
    (True, 1.0)
    """

    start: Tensor
    step: float
    correction: Tensor | None = None
    pull: float = 0.0
    """the weight of a proximal term, which pulls x_k towards `start`"""
    decay: float = 1.0
    """the share of the sum of gradients that remains when the next gradient is added"""


class Algorithm(ABC):
    """The interface of an algorithm: override the methods that differ from plain local SGD on the server's model.

    `report` and `merge` have no default. An algorithm with server memory per client overrides `init_row` and
    `digest`. An algorithm that sends a message after the merge overrides `farewell` and `receive`.
    """

    label: ClassVar[str]
    """the algorithm's name in figures, tables and messages; default: the name of the class"""
    eval_model: ClassVar[Literal["server", "clients"]] = "server"
    """which model is evaluated by default: the server's, or the mean of all N clients' `x`"""
    reads_movement: ClassVar[bool] = False
    """whether a function uses how far x moved since an earlier round; then no server optimiser may change its steps"""

    changes: ClassVar[Mapping[str, str]] = {}
    """uplinks that are the change of a vector in the client state, with that vector's name; these may be compressed"""
    lossy: ClassVar[bool] = False
    """whether clients send a compressed change and add what was sent to their vector"""

    unequal_steps: ClassVar[Literal["means", "displacements", "refused"]] = "means"
    """what clients with different numbers of steps K_i contribute: mean gradients G_i, as if all had taken K steps, or
    displacements, K_i/K G_i (the engine's G is then the sum of the gradients / K); or such runs are refused"""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "label" not in vars(cls):
            cls.label = cls.__name__

    def check(self, first: Round) -> None:  # noqa: B027  # optional
        """Raises an InputError if the options do not fit N or the rates of the first round; called before a run."""

    def init_server(self, x0: Tensor, first: Round) -> State:
        """The server's state before the first round, `first`."""
        return {"x": x0}

    def init_client(self, x0: Tensor) -> State:
        """The state of a client that was never active."""
        return {}

    def init_row(self, x0: Tensor) -> State:
        """The server's memory of a client that was never active."""
        return {}

    def keyed(self, client: State, clients: Tensor, seed: int) -> State:
        """`client` with keys for the random numbers of these clients, ids as a tensor; called before `plan`."""
        return client

    def downlink(self, server: State, now: Round) -> Message:
        """The message to every active client at the start of the round."""
        return {"x": server["x"]}

    def plan(self, client: State, down: Message, now: Round) -> LocalPlan:
        """The client's K local steps."""
        return LocalPlan(start=down["x"], step=now.eta_l)

    @abstractmethod
    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        """The uplink message and the client's next state, given the mean gradient G of the K steps."""

    def unpack(self, message: Message, x: Tensor) -> Message:
        """The uplink as `digest` takes it, from the message that was sent; x has the length of the model."""
        return message

    def identify(self, row: State, clients: Tensor) -> State:
        """`row` with the constants that the server knows of these clients, ids as a tensor; called before `digest`."""
        return row

    def digest(self, row: State, uplink: Message, now: Round) -> tuple[Message, State]:
        """The client's contribution to the sum and its next `row`, the server's memory of that client."""
        return uplink, row

    @abstractmethod
    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        """The server's next state, given the sum of the contributions of the m active clients (m may be 0)."""

    def farewell(self, server: State, now: Round) -> Message:
        """The message to every active client after the merge."""
        return {}

    def receive(self, client: State, message: Message, now: Round) -> State:
        """The client's state after it received the `farewell` message."""
        return client

    @property
    def only_synchronous(self) -> str:
        """Why the algorithm cannot be trained asynchronously, for an error message; empty: it can."""
        return ""

    @property
    def summable(self) -> bool:
        """Whether (unpacked) uplinks may be summed on their way to the server: true if `digest` is not overridden."""
        return type(self).digest is Algorithm.digest

    @property
    def name(self) -> str:
        """The algorithm's name in files."""
        return type(self).__name__
