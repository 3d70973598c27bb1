"""The server's side of the protocol: orders to clients, their replies, and the merge."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor

from ...algorithms import Algorithm, Message, Round, State
from ...base.checks import InputError, integer
from ...participation import DelayMeter
from ...training import Options
from . import membership
from .attempt import Attempt, version_refusal
from .contributions import Contribution, Contributions
from .merge_rules import MergeRules
from .messages import NEVER, Order, Reply, StepId, Terms, content_id
from .norm_bound import MEASURED, largest_norm
from .precision import narrowed, widened
from .probes import example_uplink, has_farewell, needs_start, stateful, totals_are_gradients
from .server_state import Merged, ServerState
from .uplink_validator import UplinkValidator


@dataclass(frozen=True)
class RoundOutcome:
    """How a round ended."""

    merged: tuple[int, ...]
    """the clients whose replies were merged"""
    advanced: bool
    """whether the round is done; otherwise it is repeated"""
    reset: str = ""
    """why a new epoch began, if one did"""
    refused: dict[int, str] = field(default_factory=dict)
    """clients whose replies arrived but are beyond the bound, with the reason"""
    struck_out: dict[int, int] = field(default_factory=dict)
    """clients that are not asked from now on because of their strikes, and in how many attempts"""


class Ledger:
    """The server's side of the protocol: makes orders to clients, checks replies and merges them.

    It uses no network, clock or file.

    Args:
      algorithm: the algorithm.
      x0: x^(0). All messages have its dtype.
      n: N, the number of clients.
      options: local steps, rates, batch size, seed, rounds and evaluations; the others are for simulations only.
      rules: when replies are merged.
    """

    def __init__(self, algorithm: Algorithm, x0: Tensor, n: int, options: Options, rules: MergeRules) -> None:
        self.algorithm, self.options, self.rules = algorithm, options, rules
        self.n = integer("clients", n, low=1)
        self._local_steps = integer("local_steps", options.local_steps, low=1)
        rules.check(algorithm, self.n)
        self.state = ServerState(server={}, start=x0, delays=DelayMeter(self.n), on_loss=rules.on_loss)
        algorithm.check(self.record(0))
        self.state.server = widened(algorithm.init_server(x0, self.record(0)), but="x")
        self.validator = UplinkValidator(example_uplink(algorithm, x0, self.record(0)))
        self.contributions = Contributions(algorithm, table=rules.on_loss == "table")
        self._stateful, self._sends_start = stateful(algorithm), needs_start(algorithm)
        self._clips, self._has_farewell = totals_are_gradients(algorithm), has_farewell(algorithm)
        self._broadcast: tuple[State, tuple[int, ...], Terms, Message, str] | None = None
        self._awaiting_farewell: set[int] = set()
        self._begin_attempt()

    def _begin_attempt(self) -> None:
        self._attempt = Attempt(self.state, self.validator, stateful=self._stateful)

    def restore(self, state: ServerState) -> None:
        """Continues with a saved state."""
        if state.on_loss != self.rules.on_loss:
            raise InputError("on_loss", self.rules.on_loss, f"the saved state was made with {state.on_loss!r}")
        self.state = state
        self._awaiting_farewell = set()
        self._begin_attempt()

    def record(self, t: int) -> Round:
        """The record of round t. Its rates are those of round t; its `t` counts from the first round of the epoch.

        Its `seen` are the clients whose contributions are in the server's sums now.
        """
        state = self.state
        # A client that lost its state is still in the table until it is merged again.
        seen = len(state.last.keys() | state.table.keys())
        return replace(self.options.record(t, self.n, self._local_steps), t=t - state.first_round, seen=seen)

    def eligible(self, client: int) -> bool:
        """Whether this client exists, is not evicted, and has too few strikes to be skipped."""
        return membership.eligible(self.state, client)

    def client_records(self) -> list[membership.ClientRecord]:
        """What the server knows of each client."""
        return membership.records(self.state, range(self.n))

    @property
    def limit(self) -> float:
        """The largest norm of a client's total that is merged; infinite if there is no limit yet."""
        norms = self.state.first_norms
        if not self.rules.norm_limit or len(norms) < self._to_measure:
            return math.inf
        return largest_norm(self.rules.norm_limit, norms.values())

    @property
    def _to_measure(self) -> int:
        """Clients that must be measured before anything is merged."""
        return min(MEASURED, membership.left(self.state)) if self.rules.norm_limit else 0

    def order(self, client: int) -> Order:
        """The order for this client in the current round."""
        step_id, (terms, down, content) = self._step_id(client), self._content()
        start = self.state.start if self._sends_start and step_id.base == NEVER else None
        return Order(step_id, terms, down, start, _order_id(step_id, content), self.state.serial)

    def receive(self, reply: Reply) -> str | None:
        """Accepts a reply of the current round, or returns the reason why it is refused."""
        step_id = reply.step_id
        client = step_id.client
        if step_id != self._step_id(client) or reply.order != _order_id(step_id, self._content()[2]):
            return "answers another order"
        if client in self.state.evicted:
            return "is from an evicted client"
        return self._attempt.receive(reply)

    def strike(self, client: int) -> None:
        """Counts a fault found by another module, such as an unreadable reply, in the current attempt."""
        self._attempt.strike(client)

    def take_outdated(self) -> set[int]:
        """The clients to ask again in this round, because the server's serial was too small for them."""
        return self._attempt.take_outdated()

    @property
    def accepted_count(self) -> int:
        """Replies received in this round that can be merged."""
        return len(self._attempt.accepted)

    @property
    def must_reset(self) -> bool:
        """Whether a new epoch has to begin, so that further replies to this round are useless."""
        return bool(self._attempt.lost) and self.rules.on_loss == "reset"

    @property
    def blames_clients(self) -> bool:
        """Whether the offences in this attempt are strikes, by the replies so far."""
        return membership.blamed(self._attempt.offenders, self._attempt.heard)

    def needed(self, scheduled: int | None) -> int:
        """Replies needed to merge a round in which the schedule, if there is one, asks for `scheduled` clients.

        At most the clients that can be asked. Without a schedule, the first rounds need as many as set the norm limit.
        """
        if scheduled is not None:
            return min(self.rules.quorum, scheduled)
        first = self._to_measure if len(self.state.first_norms) < self._to_measure else 1
        return max(1, min(max(self.rules.quorum, first), membership.asked_now(self.state)))

    def close_round(self, scheduled: int | None = None) -> RoundOutcome:
        """Ends the round: merges the accepted replies if they reach the quorum, and advances to the next round.

        Args:
          scheduled: how many clients the schedule asks for, if there is one; the quorum is never larger.
        """
        state, attempt = self.state, self._attempt
        accepted, lost = attempt.accepted, sorted(attempt.lost)
        needed, resets = self.needed(scheduled), self.must_reset
        # With fewer clients, a median cannot reveal a malicious one: replies are measured, and not merged.
        measuring = len(state.first_norms.keys() | accepted.keys()) < self._to_measure
        parts, refused = ({}, {}) if resets else self._bounded(accepted)
        self._begin_attempt()
        self._awaiting_farewell = set()
        for client in lost:
            state.losses[client] = state.losses.get(client, 0) + 1
        struck_out = membership.punish(state, attempt.offenders | refused.keys(), attempt.heard)
        # A farewell needs a serial between this round's and the next one's.
        state.serial += 2
        if resets:
            self._reset()
            return RoundOutcome((), False, f"client {lost[0]} has lost its state", struck_out=struck_out)
        for client in lost:
            # Its contributions stay in the table and are subtracted when the client is merged again.
            del state.last[client]
        if len(parts) < needed or (measuring and scheduled is None):
            return RoundOutcome((), False, refused=refused, struck_out=struck_out)
        merged = {} if measuring else parts
        self._merge(merged, accepted)
        return RoundOutcome(tuple(sorted(merged)), True, refused=refused, struck_out=struck_out)

    def farewell(self, client: int) -> Order | None:
        """The message after the merge for a client whose reply was just merged, if the algorithm sends one."""
        if client not in self._awaiting_farewell:
            return None
        state, t = self.state, self.state.t - 1
        now = self.record(t)
        step_id = StepId(state.job, state.epoch, 2 * t + 1, state.last[client].version, client)
        terms, vectors = self._terms(now), narrowed(self.algorithm.farewell(state.server, now), state.start.dtype)
        content = content_id(terms, vectors=vectors)
        return Order(step_id, terms, vectors, None, _order_id(step_id, content), state.serial - 1)

    def confirm_farewell(self, reply: Reply) -> str | None:
        """Accepts the reply to a farewell, or returns the reason why it is refused.

        Without a confirmation, the server still expects the client's state before the farewell.
        """
        step_id = reply.step_id
        order = self.farewell(step_id.client)
        if order is None or (step_id, reply.order, reply.status) != (order.step_id, order.id, "done"):
            return "answers another order"
        refusal = version_refusal(reply, self._stateful)
        if refusal:
            return refusal
        self.state.last[step_id.client] = Merged(step_id.step, reply.version)
        self._awaiting_farewell.remove(step_id.client)
        return None

    def evict(self, client: int) -> str:
        """Excludes a client until it is readmitted, and takes its contributions out of the server's sums.

        Returns what was done. Replies to orders that were sent before are not merged.
        """
        state = self.state
        membership.exclude(state, client)
        now = self.record(state.t)
        change = self.contributions.withdrawal(state, client, now)
        self._begin_attempt()
        self._awaiting_farewell.discard(client)
        # Its norm must not count in the bound of the others. If it is readmitted, it is measured again.
        state.first_norms.pop(client, None)
        if change is None:
            self._reset()
            return f"client {client} is evicted; its state is not known here, so epoch {state.epoch} begins"
        self.contributions.forget(state, client)
        if not change:
            return f"client {client} is evicted; there is nothing of it to subtract"
        merged = self.algorithm.merge(state.server, change, 1, now)
        state.server = state.server | {name: merged[name] for name in self.contributions.sums}
        return f"client {client} is evicted; its contributions are subtracted"

    def readmit(self, client: int) -> str:
        """Undoes `evict`: the client starts over."""
        membership.include(self.state, client)
        return f"client {client} is readmitted; it starts over"

    def begin_epoch(self) -> str:
        """Begins a new epoch, for a state that is older than those of the clients. Returns what was done."""
        self._begin_attempt()
        self._awaiting_farewell = set()
        self._reset()
        return f"epoch {self.state.epoch} begins: client states are reset, x is kept"

    def drift(self) -> float | None:
        """||y - sum of all h_i|| / ||y||, or its counterpart for this algorithm; None without a table."""
        if self.rules.on_loss != "table":
            return None
        return self.contributions.drift(self.state, self.record(self.state.first_round))

    def _step_id(self, client: int) -> StepId:
        """The step of this client in the current round."""
        state = self.state
        base = state.last[client].version if client in state.last else NEVER
        return StepId(state.job, state.epoch, 2 * state.t, base, client)

    def _content(self) -> tuple[Terms, Message, str]:
        """What all orders of the current round share, and its id."""
        state = self.state
        # The terms depend on these numbers only. The server's vectors are replaced by a merge, never changed.
        key = (state.t, state.epoch, len(state.first_norms), len(state.evicted))
        if self._broadcast is None or self._broadcast[0] is not state.server or self._broadcast[1] != key:
            now = self.record(state.t)
            terms, down = self._terms(now), narrowed(self.algorithm.downlink(state.server, now), state.start.dtype)
            start = {"start": state.start} if self._sends_start else {}
            self._broadcast = state.server, key, terms, down, content_id(terms, vectors=down | start)
        return self._broadcast[2:]

    def _terms(self, now: Round) -> Terms:
        dtype = str(self.state.start.dtype).removeprefix("torch.")
        clip = self.limit if self._clips else math.inf
        options = self.options
        return Terms(
            now,
            options.seed,
            options.batch_size,
            dtype,
            clip if math.isfinite(clip) else 0.0,
            options.clip_norm or 0.0,
            options.weight_decay,
        )

    def _bounded(self, accepted: dict[int, Reply]) -> tuple[dict[int, Contribution], dict[int, str]]:
        """The contributions within the bound, and why the others are refused."""
        state, now = self.state, self.record(self.state.t)
        parts = {i: self.contributions.of(state, i, accepted[i].vectors, now) for i in sorted(accepted)}
        norms = {client: part.norm for client, part in parts.items()} | state.first_norms
        if not self.rules.norm_limit or not parts:
            return parts, {}
        if len(norms) < self._to_measure:
            state.first_norms = norms
            return parts, {}
        limit, refused = largest_norm(self.rules.norm_limit, norms.values()), {}
        for client, part in list(parts.items()):
            if part.norm > limit * part.tolerance:
                del parts[client]
                state.outliers[client] = state.outliers.get(client, 0) + 1
                refused[client] = f"its h has norm {part.norm:.3g}, the largest accepted is {limit:.3g}"
        return parts, refused

    def _merge(self, parts: dict[int, Contribution], replies: dict[int, Reply]) -> None:
        state = self.state
        for client, part in parts.items():
            self.contributions.record(state, client, part)
            state.last[client] = Merged(2 * state.t, replies[client].version)
        now = self.record(state.t)  # `seen` counts these clients
        total = self.contributions.total([part.part for part in parts.values()], state, now)
        server = widened(self.algorithm.merge(state.server, total, len(parts), now), but="x")
        state.server = server | {"x": server["x"].to(state.start.dtype)}
        if self._has_farewell:
            self._awaiting_farewell = set(parts)
        state.delays.update(np.array(list(parts), dtype=np.int64))
        state.t += 1

    def _reset(self) -> None:
        """Begins the next epoch: all client states are reset, x is kept."""
        state = self.state
        x = state.server["x"]
        state.epoch, state.first_round, state.start = state.epoch + 1, state.t, x
        state.last, state.rows, state.table, state.sketches = {}, {}, {}, {}
        state.server = widened(self.algorithm.init_server(x, self.record(state.t)), but="x")


def _order_id(step_id: StepId, content: str) -> str:
    return content_id(step_id, content, vectors={})
