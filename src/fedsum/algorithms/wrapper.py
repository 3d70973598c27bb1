"""An algorithm on top of another one, which does everything that the wrapper does not override."""

from dataclasses import dataclass

from torch import Tensor

from ..base.checks import InputError, set_fields
from .base import Algorithm, LocalPlan, Message, Round, State
from .fedavg import FedAvg


@dataclass(frozen=True)
class Wrapper(Algorithm):
    """Passes every function on to `algorithm`."""

    algorithm: Algorithm = FedAvg()  # noqa: RUF009  # frozen

    def __post_init__(self) -> None:
        inner = self.algorithm
        if not isinstance(inner, Algorithm):
            raise InputError("algorithm", inner, "an algorithm, such as FedSUM()")
        set_fields(
            self,
            eval_model=inner.eval_model,
            reads_movement=inner.reads_movement,
            changes=inner.changes,
            lossy=inner.lossy,
            unequal_steps=inner.unequal_steps,
        )

    def check(self, first: Round) -> None:
        self.algorithm.check(first)

    def init_server(self, x0: Tensor, first: Round) -> State:
        return self.algorithm.init_server(x0, first)

    def init_client(self, x0: Tensor) -> State:
        return self.algorithm.init_client(x0)

    def init_row(self, x0: Tensor) -> State:
        return self.algorithm.init_row(x0)

    def keyed(self, client: State, clients: Tensor, seed: int) -> State:
        return self.algorithm.keyed(client, clients, seed)

    def downlink(self, server: State, now: Round) -> Message:
        return self.algorithm.downlink(server, now)

    def plan(self, client: State, down: Message, now: Round) -> LocalPlan:
        return self.algorithm.plan(client, down, now)

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        return self.algorithm.report(client, down, plan, G, now)

    def unpack(self, message: Message, x: Tensor) -> Message:
        return self.algorithm.unpack(message, x)

    def identify(self, row: State, clients: Tensor) -> State:
        return self.algorithm.identify(row, clients)

    def digest(self, row: State, uplink: Message, now: Round) -> tuple[Message, State]:
        return self.algorithm.digest(row, uplink, now)

    def merge(self, server: State, total: Message, m: int, now: Round) -> State:
        return self.algorithm.merge(server, total, m, now)

    def farewell(self, server: State, now: Round) -> Message:
        return self.algorithm.farewell(server, now)

    def receive(self, client: State, message: Message, now: Round) -> State:
        return self.algorithm.receive(client, message, now)

    @property
    def only_synchronous(self) -> str:
        return self.algorithm.only_synchronous

    @property
    def summable(self) -> bool:
        return self.algorithm.summable
