from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..base.checks import InputError, probability, set_fields
from ..base.keyed import Purpose, torch_seed
from .base import Algorithm, LocalPlan, Message, Round, State
from .compressors import Compressor, TopK
from .fedsum import FedSUM
from .wrapper import Wrapper

_PREFIX = "up_"
"""of the wrapper's own entries in the client state"""


@dataclass(frozen=True)
class Compressed(Wrapper):
    """A lossy uplink for an algorithm whose clients send changes, such as FedSUM with 1% of the coordinates.

    Without compression, client i sends G_i - h_i and then stores h_i <- G_i, where G_i is the mean of its K gradients
    in the round. (In SCAFFOLD the stored vector is c_i. In FOCUS the last gradient takes the place of G_i.) With
    compression, the client sends a compressed change delta_i and adds delta_i to h_i:

        v_i <- (1 - beta) v_i + beta G_i
        delta_i = C(alpha (v_i - h_i)),  h_i <- h_i + delta_i

    C(v): v as the server restores it from the compressed message. v_i: a moving average of G_i, on the client. The
    server adds the same delta_i, so its sum of all changes is the sum of all h_i with any compressor. Everything else
    is as in the algorithm. `Identity()` sends the change itself.

    Supported algorithms: FedSUM, FedSUM-B, FedSUM-CR, FOCUS, SCAFFOLD and SCAFFOLD-M.
    `Compressed(SCAFFOLD(), C, alpha=...)` is SCALLION, and `Compressed(SCAFFOLD(), C, beta=...)` is SCAFCOM (Huang et
    al., 2024). The client's part of both was written without the paper's text at hand. A compressed vector counts as
    one vector in `communication`, and with its own size in `bytes`.

    Args:
      algorithm: the algorithm whose uplink is compressed.
      compressor: `TopK`, `RandomK`, `Int8` or `Identity`.
      alpha: the scale of the change before it is compressed, in (0, 1].
      beta: the weight of G_i in v_i, in (0, 1]; with 1, v_i = G_i and clients store no v_i.

    >>> import fedsum
    >>> task = fedsum.tasks.Quadratic([[1.0, 2.0], [3.0, 2.0]], [[0.0, 1.0], [4.0, 5.0]])  # optimum (3, 3)
    >>> sparse = Compressed(fedsum.FedSUM(), fedsum.TopK(0.5))
    >>> sparse.label
    'FedSUM, top 50%'
    >>> fedsum.simulate(task, sparse, fedsum.Biased(2, group=1), rounds=500, local_steps=2, eta_l=0.02).x
    tensor([3.0000, 3.0000])
    """

    label: ClassVar[str] = "Compressed"

    algorithm: Algorithm = FedSUM()  # noqa: RUF009  # frozen
    compressor: Compressor = TopK()  # noqa: RUF009  # frozen
    alpha: float = 1.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.compressor, Compressor):
            raise InputError("compressor", self.compressor, "a compressor: TopK(), RandomK(), Int8() or Identity()")
        inner = self.algorithm
        if inner.lossy:
            raise InputError("algorithm", inner, "is compressed already")
        if not inner.changes:
            accepted = f"clients of {inner.label} do not send changes; FedSUM's, FOCUS's and SCAFFOLD's do"
            raise InputError("algorithm", inner, accepted)
        set_fields(
            self,
            alpha=probability("alpha", self.alpha),
            beta=probability("beta", self.beta),
            label=f"{inner.label}, {self.compressor.label}",
            lossy=True,
        )

    def init_client(self, x0: Tensor) -> State:
        client = dict(self.algorithm.init_client(x0))
        if self.beta < 1:
            client[_PREFIX + "v"] = torch.zeros_like(x0)
        if self.compressor.random:
            client[_PREFIX + "key"] = torch.tensor(0, device=x0.device)  # `keyed` replaces it
        return client

    def keyed(self, client: State, clients: Tensor, seed: int) -> State:
        client = self.algorithm.keyed(client, clients, seed)
        if not self.compressor.random:
            return client
        keys = [torch_seed(seed, Purpose.COMPRESSION, client=i) for i in clients.reshape(-1).tolist()]
        old = client[_PREFIX + "key"]
        return {**client, _PREFIX + "key": torch.tensor(keys, dtype=torch.int64).reshape(old.shape).to(old.device)}

    def plan(self, client: State, down: Message, now: Round) -> LocalPlan:
        return self.algorithm.plan(_inner(client), down, now)

    def report(self, client: State, down: Message, plan: LocalPlan, G: Tensor, now: Round) -> tuple[Message, State]:
        inner, own = _inner(client), {name: value for name, value in client.items() if name.startswith(_PREFIX)}
        v = G
        if self.beta < 1:
            v = own[_PREFIX + "v"] = (1 - self.beta) * own[_PREFIX + "v"] + self.beta * G
        uplink, after = self.algorithm.report(inner, down, plan, v, now)
        message, after = dict(uplink), dict(after)
        for name, vector in self.algorithm.changes.items():
            # In the precision of G: a deployment stores client states in float64 and sends float32.
            change = (self.alpha * message.pop(name)).to(G.dtype)
            parts = self.compressor.compress(change, own.get(_PREFIX + "key"), now.t)
            after[vector] = inner[vector] + self.compressor.restore(parts, G)
            message |= {_part(name, part): value for part, value in parts.items()}
        return message, {**after, **own}

    def unpack(self, message: Message, x: Tensor) -> Message:
        uplink = dict(message)
        for name in self.algorithm.changes:
            names = {part: _part(name, part) for part in ("values", "indices", "stream", "scale")}
            parts = {part: uplink.pop(full) for part, full in names.items() if full in message}
            uplink[name] = self.compressor.restore(parts, x)
        return self.algorithm.unpack(uplink, x)

    def receive(self, client: State, message: Message, now: Round) -> State:
        return {**client, **self.algorithm.receive(_inner(client), message, now)}


def _inner(client: State) -> State:
    """The wrapped algorithm's part of the client state."""
    return {name: value for name, value in client.items() if not name.startswith(_PREFIX)}


def _part(name: str, part: str) -> str:
    """The name of a part in the message. `count` does not take the parts after a colon for vectors."""
    return name if part == "values" else f"{name}:{part}"
