"""The server's side of the protocol: orders to clients, their replies, and the merge."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..algorithms import Algorithm, Message, Round
from ..base.checks import integer
from ..participation import DelayMeter
from ..training import Options
from .merge_rules import MergeRules
from .probes import example_uplink, has_farewell, needs_start, stateful, sums
from .protocol import NEVER, Order, Reply, StepId, Terms
from .server_state import ServerState
from .uplink_validator import UplinkValidator, norm

_MAX_LOSSES = 3
"""losses of its state after which a client is excluded: with 'reset', each loss resets all other clients"""
_MAX_EPOCHS = 2**31


@dataclass(frozen=True)
class RoundOutcome:
    """How a round ended."""

    merged: tuple[int, ...]
    """the clients whose replies were merged"""
    advanced: bool
    """whether the round is done; otherwise it is repeated"""
    reset: str = ""
    """why a new epoch began, if one did"""


class Ledger:
    """Makes orders, receives replies and merges them. Uses no network, clock or file.

    Args:
      algorithm: the algorithm.
      x0: x^(0). All vectors have its dtype.
      n: N, the number of clients.
      options: local steps, rates, batch size, seed, rounds and evaluations; the others are for simulations only.
      rules: when replies are merged.
    """

    def __init__(self, algorithm: Algorithm, x0: Tensor, n: int, options: Options, rules: MergeRules) -> None:
        self.algorithm, self.options, self.rules = algorithm, options, rules
        self.n = integer("clients", n, low=1)
        rules.check(algorithm, self.n)
        self.state = ServerState(server={}, start=x0, delays=DelayMeter(self.n))
        algorithm.check(self.record(0))
        self.state.server = algorithm.init_server(x0, self.record(0))
        self.validator = UplinkValidator(example_uplink(algorithm, x0, self.record(0)), rules.norm_limit)
        self._sends_start = needs_start(algorithm)
        self._accepted: dict[int, Message] = {}
        self._lost: set[int] = set()
        self._ahead: dict[int, int] = {}
        self._awaiting_farewell: set[int] = set()

    def record(self, t: int) -> Round:
        """The record of round t. Its rates are those of round t; its `t` counts from the first round of the epoch."""
        return replace(self.options.record(t, self.n), t=t - self.state.first_round)

    def eligible(self, client: int) -> bool:
        """Whether this client exists and is not excluded."""
        return 0 <= client < self.n and self.state.losses.get(client, 0) < _MAX_LOSSES

    def order(self, client: int) -> Order:
        """The order for this client in the current round."""
        state, step_id = self.state, self._step_id(client)
        now = self.record(state.t)
        start = state.start if self._sends_start and step_id.last == NEVER else None
        return Order(step_id, self._terms(now), self.algorithm.downlink(state.server, now), start)

    def receive(self, reply: Reply) -> str | None:
        """Accepts a reply of the current round, or returns the reason why it is refused."""
        step_id = reply.step_id
        client = step_id.client
        if step_id != self._step_id(client):
            return "answers another order"
        if client in self._accepted or client in self._lost or client in self._ahead:
            return "is not the client's first in this round"
        if reply.status != "done" and not stateful(self.algorithm):
            return f"reports {reply.status!r}, but clients of this algorithm have no state"
        if reply.status == "ahead":
            if not 0 <= reply.epoch < _MAX_EPOCHS:
                return f"claims epoch {reply.epoch}"
            self._ahead[client] = reply.epoch
            return None
        if reply.status == "lost":
            if step_id.last == NEVER:
                return "reports 'lost', but had no state to lose"
            self._lost.add(client)
            return None
        norms = self.state.norms.first if step_id.last == NEVER else self.state.norms.later
        refusal = self.validator.refusal(reply.vectors, norms)
        if refusal is None:
            self._accepted[client] = reply.vectors
        return refusal

    @property
    def accepted_count(self) -> int:
        """Replies received in this round that can be merged."""
        return len(self._accepted)

    @property
    def must_reset(self) -> bool:
        """Whether a new epoch has to begin, so that further replies to this round are useless."""
        return bool(self._ahead) or (bool(self._lost) and self.rules.on_loss == "reset")

    def close_round(self, scheduled: int | None = None) -> RoundOutcome:
        """Ends the round: merges the accepted replies if they reach the quorum, and advances to the next round.

        Args:
          scheduled: how many clients the schedule asks for, if there is one; the quorum is never larger.
        """
        accepted, lost, ahead = self._accepted, sorted(self._lost), self._ahead
        self._accepted, self._lost, self._ahead, self._awaiting_farewell = {}, set(), {}, set()
        for client in (*lost, *ahead):
            self.state.losses[client] = self.state.losses.get(client, 0) + 1
        if ahead:
            self._reset(max(self.state.epoch, *ahead.values()))
            return RoundOutcome((), False, f"client {min(ahead)} has seen a later epoch or step than the server")
        if lost and self.rules.on_loss == "reset":
            self._reset(self.state.epoch)
            return RoundOutcome((), False, f"client {lost[0]} has lost its state")
        for client in lost:
            # Its merged uplinks stay in the table and are subtracted when the client is merged again.
            del self.state.last[client]
        if len(accepted) < self.needed(scheduled):
            return RoundOutcome((), False)
        self._merge(accepted)
        return RoundOutcome(tuple(sorted(accepted)), True)

    def needed(self, scheduled: int | None) -> int:
        """Replies needed to merge a round in which the schedule, if there is one, asks for `scheduled` clients."""
        return self.rules.quorum if scheduled is None else min(self.rules.quorum, scheduled)

    def farewell(self, client: int) -> Order | None:
        """The message after the merge for a client whose reply was just merged, if the algorithm sends one."""
        if client not in self._awaiting_farewell:
            return None
        state, t = self.state, self.state.t - 1
        now = self.record(t)
        step_id = StepId(state.job, state.epoch, 2 * t + 1, 2 * t, client)
        return Order(step_id, self._terms(now), self.algorithm.farewell(state.server, now))

    def confirm_farewell(self, reply: Reply) -> str | None:
        """Accepts the reply to a farewell, or returns the reason why it is refused.

        Without a confirmation, the server still expects the client's state before the farewell.
        """
        step_id = reply.step_id
        order = self.farewell(step_id.client)
        if order is None or step_id != order.step_id or reply.status != "done":
            return "answers another order"
        self.state.last[step_id.client] = step_id.step
        self._awaiting_farewell.remove(step_id.client)
        return None

    def drift(self) -> float | None:
        """||y - sum of all h_i|| / ||y||, or its counterpart for this algorithm; None without a table.

        Compares the server's vectors with those of a single merge of everything in the table.
        """
        if self.rules.on_loss != "table":
            return None
        now = self.record(self.state.first_round)
        total = self._total([self.state.table[client] for client in sorted(self.state.table)])
        recomputed = self.algorithm.merge(self.algorithm.init_server(self.state.start, now), total, self.n, now)
        difference = size = 0.0
        for name in sums(self.algorithm):
            value = self.state.server[name]
            difference += float((value - recomputed[name]).square().sum())
            size += float(value.square().sum())
        return math.sqrt(difference / size if size else difference)

    def _step_id(self, client: int) -> StepId:
        """The step of this client in the current round."""
        state = self.state
        return StepId(state.job, state.epoch, 2 * state.t, state.last.get(client, NEVER), client)

    def _terms(self, now: Round) -> Terms:
        dtype = str(self.state.start.dtype).removeprefix("torch.")
        return Terms(now, self.options.seed, self.options.batch_size, dtype)

    def _merge(self, accepted: dict[int, Message]) -> None:
        state, algorithm, now = self.state, self.algorithm, self.record(self.state.t)
        contributions = []
        for client in sorted(accepted):  # a fixed order of summation, whatever the order of arrival
            first = client not in state.last
            row = state.rows.get(client, algorithm.init_row(state.start))
            row = algorithm.identify(row, torch.tensor(client))
            part, state.rows[client] = algorithm.digest(row, accepted[client], now)
            if self.rules.on_loss == "table":
                previous = state.table.get(client, {name: torch.zeros_like(value) for name, value in part.items()})
                if first:  # a client that starts over reports its whole state, so its earlier uplinks are subtracted
                    part = {name: value - previous[name] for name, value in part.items()}
                state.table[client] = {name: previous[name] + value for name, value in part.items()}
            contributions.append(part)
            (state.norms.first if first else state.norms.later).append(norm(accepted[client]))
            state.last[client] = 2 * state.t
        state.server = algorithm.merge(state.server, self._total(contributions), len(accepted), now)
        if has_farewell(algorithm):
            self._awaiting_farewell = set(accepted)
        state.delays.update(np.array(sorted(accepted), dtype=np.int64))
        state.t += 1

    def _total(self, contributions: list[Message]) -> Message:
        if not contributions:
            x, now = self.state.start, self.record(self.state.first_round)
            part, _ = self.algorithm.digest(self.algorithm.init_row(x), example_uplink(self.algorithm, x, now), now)
            return {name: torch.zeros_like(value) for name, value in part.items()}
        names = contributions[0].keys()
        return {name: torch.stack([part[name] for part in contributions]).sum(0) for name in names}

    def _reset(self, epoch: int) -> None:
        """Begins the epoch after `epoch`: all client states are reset, x is kept."""
        state = self.state
        x = state.server["x"]
        state.epoch, state.first_round, state.start = epoch + 1, state.t, x
        state.last, state.rows, state.table = {}, {}, {}
        state.server = self.algorithm.init_server(x, self.record(state.t))
