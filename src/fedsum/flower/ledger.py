"""The server's side of the protocol: what it remembers of each client, and what it merges."""

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ..algorithms import Algorithm, Message, Round, State
from ..base.checks import InputError, integer, real
from ..base.checks import seed as check_seed
from .probes import example_uplink, has_farewell, needs_start, stateful, telescopes
from .protocol import NEVER, Order, Reply, StepId, Terms
from .uplink_validator import UplinkValidator

_LOSSES = 3
"""how often a client may lose its state before it is asked no more: each time costs all others theirs"""
_EPOCHS = 2**31


@dataclass
class ServerState:
    """All that must survive the server: written to the disk before the next order goes out."""

    server: State
    start: Tensor
    """x at the beginning of the epoch"""
    job: str = field(default_factory=lambda: secrets.token_hex(8))
    epoch: int = 0
    begun: int = 0
    """the first round of the epoch"""
    t: int = 0
    """rounds done, and the number of the current one"""
    last: dict[int, int] = field(default_factory=dict)
    """the last merged step of each client seen in this epoch"""
    rows: dict[int, State] = field(default_factory=dict)
    """the algorithm's memory of each client"""
    table: dict[int, Message] = field(default_factory=dict)
    """the sum of what was merged from each client in this epoch, if it is kept"""
    losses: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Closed:
    """How a round ended."""

    merged: tuple[int, ...]
    advanced: bool
    """whether t went on; if not, the round is held again"""
    reset: str = ""
    """why a new epoch began, if one did"""


class Ledger:
    """Asks, hears and merges; knows nothing of networks, clocks or files.

    Args:
      algorithm: what is run.
      x0: x^(0).
      n: N.
      local_steps: K.
      eta_l: a number or a function of the round.
      eta_g: global learning rate.
      batch_size: samples a gradient.
      seed: of the clients' batches.
      quorum: fewer replies than this, and nothing is merged.
      on_loss: when a client has lost its state, "reset" begins a new epoch (all clients' states are zero again,
        x stays); "table" keeps the sum of what was merged from each client, N vectors on the server, so that
        only the loser begins anew.
      norm_limit: see `UplinkValidator`.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        x0: Tensor,
        *,
        n: int,
        local_steps: int,
        eta_l: float | Callable[[int], float],
        eta_g: float = 1.0,
        batch_size: int = 128,
        seed: int = 0,
        quorum: int = 1,
        on_loss: Literal["reset", "table"] = "reset",
        norm_limit: float = 25.0,
    ) -> None:
        self.algorithm, self.eta_l = algorithm, eta_l
        self.n = integer("clients", n, low=1)
        self.K = integer("local_steps", local_steps, low=1)
        self.batch_size = integer("batch_size", batch_size, low=1)
        self.quorum = integer("quorum", quorum, low=1, high=n, high_name="clients")
        self.eta_g, self.seed = real("eta_g", eta_g, above=0), check_seed(seed)
        if on_loss not in ("reset", "table"):
            raise InputError("on_loss", on_loss, "'reset' or 'table'")
        if on_loss == "table" and not telescopes(algorithm):
            raise InputError("on_loss", on_loss, f"{algorithm.name}'s uplinks do not sum up to a state; use 'reset'")
        self.on_loss = on_loss
        self.state = ServerState({}, start=x0)
        self.state.server = algorithm.init_server(x0, self.record(0))
        self.validator = UplinkValidator(example_uplink(algorithm, x0, self.record(0)), norm_limit)
        self._sends_start = needs_start(algorithm)
        self._accepted: dict[int, Message] = {}
        self._lost: set[int] = set()
        self._ahead: dict[int, int] = {}
        self._parting: set[int] = set()

    def record(self, t: int) -> Round:
        """What everyone knows in round t. Its t counts from the epoch's first round, when states were new."""
        eta_l = self.eta_l(t) if callable(self.eta_l) else self.eta_l
        return Round(t - self.state.begun, self.n, self.K, real(f"eta_l({t})", eta_l, above=0), self.eta_g)

    def welcome(self, client: int) -> bool:
        """Whether this client may be asked."""
        return 0 <= client < self.n and self.state.losses.get(client, 0) < _LOSSES

    def order(self, client: int) -> Order:
        """What to ask of this client in the current round."""
        state = self.state
        last, now = state.last.get(client, NEVER), self.record(state.t)
        step_id = StepId(state.job, state.epoch, 2 * state.t, last, client)
        start = state.start if self._sends_start and last == NEVER else None
        down = self.algorithm.downlink(state.server, now)
        return Order(step_id, self._terms(now), down, start)

    def hear(self, reply: Reply) -> str | None:
        """Takes a reply of the current round; why it is refused, if it is."""
        step_id, state = reply.step_id, self.state
        client = step_id.client
        if step_id != StepId(state.job, state.epoch, 2 * state.t, state.last.get(client, NEVER), client):
            return "answers another order"
        if client in self._accepted or client in self._lost or client in self._ahead:
            return "answers a second time"
        if reply.status != "done" and not stateful(self.algorithm):
            return "has no state to speak of"
        if reply.status == "ahead":
            if not 0 <= reply.epoch < _EPOCHS:
                return f"claims epoch {reply.epoch}"
            self._ahead[client] = reply.epoch
            return None
        if reply.status == "lost":
            if step_id.last == NEVER:
                return "has nothing to lose"
            self._lost.add(client)
            return None
        refusal = self.validator.refusal(reply.vectors, first=step_id.last == NEVER)
        if refusal is None:
            self._accepted[client] = reply.vectors
        return refusal

    @property
    def heard(self) -> int:
        """Replies that would be merged."""
        return len(self._accepted)

    @property
    def void(self) -> bool:
        """Whether the round cannot be merged any more, whoever else answers."""
        return bool(self._ahead) or (bool(self._lost) and self.on_loss == "reset")

    def close(self, asked: int | None = None) -> Closed:
        """Ends the round: merges what was heard, if that is enough, and goes on to the next.

        Args:
          asked: how many the schedule wanted, if there is one: of a smaller round no larger quorum is asked.
        """
        accepted, lost, ahead = self._accepted, sorted(self._lost), self._ahead
        self._accepted, self._lost, self._ahead, self._parting = {}, set(), {}, set()
        for client in (*lost, *ahead):
            self.state.losses[client] = self.state.losses.get(client, 0) + 1
        if ahead:
            self._reset(max(self.state.epoch, *ahead.values()))
            return Closed((), False, f"client {min(ahead)} remembers rounds that the server does not")
        if lost and self.on_loss == "reset":
            self._reset(self.state.epoch)
            return Closed((), False, f"client {lost[0]} has lost its state")
        for client in lost:
            del self.state.last[client]  # what it had is still in the table, and is subtracted when it is back
        if len(accepted) < (self.quorum if asked is None else min(self.quorum, asked)):
            return Closed((), False)
        self._merge(accepted)
        return Closed(tuple(sorted(accepted)), True)

    def farewell(self, client: int) -> Order | None:
        """What to tell a client whose reply was just merged, if the algorithm has something to say."""
        if client not in self._parting:
            return None
        state, t = self.state, self.state.t - 1
        now = self.record(t)
        step_id = StepId(state.job, state.epoch, 2 * t + 1, 2 * t, client)
        return Order(step_id, self._terms(now), self.algorithm.farewell(state.server, now))

    def parted(self, reply: Reply) -> str | None:
        """A client has taken the farewell in; unheard, the server goes on counting on the state before it."""
        step_id = reply.step_id
        order = self.farewell(step_id.client)
        if order is None or step_id != order.step_id or reply.status != "done":
            return "answers another order"
        self.state.last[step_id.client] = step_id.step
        self._parting.remove(step_id.client)
        return None

    def drift(self) -> float | None:
        """||y - sum of all h_i|| / ||y||, or what it is for this algorithm, where the table tells.

        The server's vectors are compared with what they would be if all that the table holds had come at once.
        """
        if self.on_loss != "table":
            return None
        now = self.record(self.state.begun)
        total = self._total([self.state.table[client] for client in sorted(self.state.table)])
        whole = self.algorithm.merge(self.algorithm.init_server(self.state.start, now), total, self.n, now)
        away = size = 0.0
        for name, value in self.state.server.items():
            if name != "x" and value.dim():
                away += float((value - whole[name]).square().sum())
                size += float(value.square().sum())
        return math.sqrt(away / size if size else away)

    def _terms(self, now: Round) -> Terms:
        return Terms(now, self.seed, self.batch_size, str(self.state.start.dtype).removeprefix("torch."))

    def _merge(self, accepted: dict[int, Message]) -> None:
        state, algorithm, now = self.state, self.algorithm, self.record(self.state.t)
        contributions = []
        for client in sorted(accepted):  # a fixed order of summation, whoever was faster
            first = client not in state.last
            row = state.rows.get(client, algorithm.init_row(state.start))
            part, state.rows[client] = algorithm.digest(row, accepted[client], now)
            if self.on_loss == "table":
                had = state.table.get(client, {name: torch.zeros_like(value) for name, value in part.items()})
                if first:  # one that begins anew reports all of its state; what was merged before is taken out
                    part = {name: value - had[name] for name, value in part.items()}
                state.table[client] = {name: had[name] + value for name, value in part.items()}
            contributions.append(part)
            self.validator.admitted(accepted[client], first=first)
            state.last[client] = 2 * state.t
        state.server = algorithm.merge(state.server, self._total(contributions), len(accepted), now)
        if has_farewell(algorithm):
            self._parting = set(accepted)
        state.t += 1

    def _total(self, contributions: list[Message]) -> Message:
        if not contributions:
            x, now = self.state.start, self.record(self.state.begun)
            part, _ = self.algorithm.digest(self.algorithm.init_row(x), example_uplink(self.algorithm, x, now), now)
            return {name: torch.zeros_like(value) for name, value in part.items()}
        names = contributions[0].keys()
        return {name: torch.stack([part[name] for part in contributions]).sum(0) for name in names}

    def _reset(self, epoch: int) -> None:
        """All clients' states are void; x stays."""
        state = self.state
        x = state.server["x"]
        state.epoch, state.begun, state.start = epoch + 1, state.t, x
        state.last, state.rows, state.table = {}, {}, {}
        state.server = self.algorithm.init_server(x, self.record(state.t))
