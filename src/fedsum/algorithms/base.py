"""What an algorithm is: pure functions on flat vectors around one shared local loop.

    server --downlink--> message --plan--> LocalPlan --[engine: K gradients]--> G
    server <---merge---- total of contributions <--digest-- uplink <--report---- G

Every function is written with broadcasting, so that a client's state may be the vectors `[d]` and scalars
`[]` of one client on its own machine, or the `[S, d]` and `[S]` of a whole cohort in the simulator. State
and messages are plain dicts of named tensors: they serialise, checkpoint and get counted without more code.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

State = dict[str, Tensor]
Message = dict[str, Tensor]


@dataclass(frozen=True)
class Round:
    """What everyone knows in a round."""

    t: int
    """the round, from 0"""
    N: int
    """clients in the federation, active or not"""
    K: int
    """local steps"""
    eta_l: float
    """local learning rate of this round"""
    eta_g: float
    """global learning rate"""

    @property
    def stride(self) -> float:
        """eta_g * eta_l * K: how far the server goes along a mean gradient."""
        return self.eta_g * self.eta_l * self.K


@dataclass(frozen=True)
class LocalPlan:
    """How a client runs its K steps: x_0 = start, x_{k+1} = x_k - step * (g(x_k) + correction)."""

    start: Tensor
    step: float
    correction: Tensor | None = None


class Algorithm(ABC):
    """The interface: override what differs from plain local SGD on the server's model.

    `report` and `merge` have no default, since they are the algorithm. An algorithm whose server remembers
    something of each client overrides `init_row` and `digest`; one that speaks to its clients after the
    merge overrides `farewell` and `receive`.
    """

    label: ClassVar[str]
    """what the algorithm is called wherever a person reads it; the class's name unless the class says otherwise"""
    eval_model: ClassVar[Literal["server", "clients"]] = "server"
    """which model is evaluated by default: the server's, or the mean of all N clients' `x`"""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "label" not in vars(cls):
            cls.label = cls.__name__

    def init_server(self, x0: Tensor, first: Round) -> State:
        return {"x": x0}

    def init_client(self, x0: Tensor) -> State:
        """The state of a client that was never active."""
        return {}

    def init_row(self, x0: Tensor) -> State:
        """The server's memory of a client that was never active."""
        return {}

    def downlink(self, server: State, now: Round) -> Message:
        """What every active client is sent."""
        return {"x": server["x"]}

    def plan(self, client: State, down: Message, now: Round) -> LocalPlan:
        return LocalPlan(start=down["x"], step=now.eta_l)

    @abstractmethod
    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        """From the mean gradient G of the K steps: what goes up, and the client's next state."""

    def digest(self, row: State, uplink: Message, now: Round) -> tuple[Message, State]:
        """What an uplink contributes to the sum, given the server's memory `row` of that client."""
        return uplink, row

    @abstractmethod
    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        """The server's step, given the contributions summed over the m active clients (m may be 0)."""

    def farewell(self, server: State, now: Round) -> Message:
        """What the active clients are sent after the merge."""
        return {}

    def receive(self, client: State, message: Message, now: Round) -> State:
        """A client's state after the message that follows the merge."""
        return client

    @property
    def summable(self) -> bool:
        """Whether uplinks may be summed on their way: exactly if the server digests none of them singly."""
        return type(self).digest is Algorithm.digest

    @property
    def name(self) -> str:
        """What files call the algorithm."""
        return type(self).__name__
