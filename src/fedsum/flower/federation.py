"""The server's round loop on Flower: send orders, wait for replies until the deadline, merge, save, repeat."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from logging import INFO, WARNING
from typing import Any, NoReturn

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.app import Message as FlowerMessage
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log

from ..base.checks import InputError, real
from ..participation import Schedule, as_ids
from ..training import Options
from .journal import Journal
from .ledger import Ledger, RoundOutcome
from .mailbox import Mailbox
from .roster import Roster
from .wire import UnreadableMessage, from_vectors, to_reply

WORK, FAREWELL = "train.work", "train.farewell"
POLL_SECONDS = 0.5
# Messages expire at the deadline. Flower's clock may be ahead of ours, so an expired message is a missing reply.
_EXPIRED = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)


class Federation(Strategy):
    """Runs a ledger's algorithm on Flower.

    Flower's own loop waits without limit for enough nodes, polls every three seconds and cannot resume a run. This one
    takes the clients that are online (or those that a schedule names), never waits longer than the deadline, and writes
    a checkpoint before each send.

    Args:
      ledger: the algorithm with its options, and the server state.
      journal: the run folder.
      schedule: the active clients of each round; None: all clients that are online.
      keys: the client of each SuperNode's public key. None without authentication: SuperNodes name their client.
      on_round: called after each merged round, when its checkpoint is written.
    """

    def __init__(
        self,
        ledger: Ledger,
        journal: Journal,
        *,
        schedule: Schedule | None = None,
        keys: Mapping[bytes, int] | None = None,
        on_round: Callable[[Ledger, RoundOutcome], None] | None = None,
    ) -> None:
        self.ledger, self.journal, self.schedule, self.keys = ledger, journal, schedule, keys
        self.on_round = on_round
        if schedule is not None and schedule.n != ledger.n:
            raise InputError("schedule.n", schedule.n, f"the federation has {ledger.n} clients")

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float = 60.0,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Trains until all rounds are done, including those of earlier runs in the same folder.

        Args:
          grid: Flower's grid, which delivers the messages.
          initial_arrays: not used; the ledger has x^(0).
          num_rounds: T; default: the `rounds` of the ledger's options.
          timeout: the deadline of a round, in seconds; its messages expire then.
          train_config: not used; orders carry the ledger's options.
          evaluate_config: not used; the server evaluates.
          evaluate_fn: called with the rounds done and the model as "x".
        """
        options = self.ledger.options
        options = options if num_rounds is None else replace(options, rounds=num_rounds)
        self.deadline = real("deadline", timeout, above=0)
        self.roster = Roster(self.ledger.n, self.keys, self._warn, patience=self.deadline)
        self._resume_or_begin(options)
        state, result = self.ledger.state, Result()
        status, reason = "failed", ""
        try:
            while True:
                self.journal.set_status("running", state.t)
                # If the server was killed between a round and its evaluation, the evaluation is due after the resume.
                due = options.evaluates(state.t) and state.evaluated < state.t
                if due and not self._evaluate(evaluate_fn, result):
                    status, reason = "diverged", f"the loss is not finite after round {state.t}"
                    self._warn(f"{reason}; try a smaller eta_l")
                    break
                if state.t >= options.rounds:
                    status = "finished"
                    break
                self._attempt_round(grid, options.rounds)
        except (KeyboardInterrupt, SystemExit):
            status = "stopped"
            raise
        except BaseException as error:
            reason = repr(error)
            raise
        finally:
            self.journal.set_status(status, state.t, reason)
        result.arrays = from_vectors({"x": state.server["x"]})
        return result

    def _resume_or_begin(self, options: Options) -> None:
        """Restores the state from the checkpoint in the folder, or writes the first checkpoint."""
        if not self.journal.resume(self.ledger):
            self._log(
                f"job {self.ledger.state.job}: {self.ledger.algorithm!r}, {self.ledger.n} clients,"
                f" {options.rounds} rounds"
            )
            self.journal.save(self.ledger, ())
            return
        state = self.ledger.state
        if not state.server["x"].isfinite().all():
            raise InputError("folder", str(self.journal.folder), "holds a run that diverged; use another folder")
        self._log(f"resumed after round {state.t} of {options.rounds}, job {state.job}")

    def _attempt_round(self, grid: Grid, rounds: int) -> None:
        """One attempt at the current round."""
        ledger, state = self.ledger, self.ledger.state
        began, t = time.monotonic(), state.t
        scheduled = None if self.schedule is None else self._scheduled_clients(self.schedule, t)
        needed = ledger.needed(None if scheduled is None else len(scheduled))
        mailbox = Mailbox(grid, state, deadline=began + self.deadline)
        asked = self._exchange(grid, mailbox, scheduled, needed)
        if mailbox.seconds_left <= 0:
            for client in sorted(mailbox.unanswered.values()):
                self._warn_silent(client)
        accepted = ledger.accepted_count
        outcome = ledger.close_round(None if scheduled is None else len(scheduled))
        for client, reason in outcome.refused.items():
            self._warn(f"round {t}: client {client}'s reply refused: {reason}")
        if outcome.reset:
            self._warn(f"round {t}: {outcome.reset}; epoch {state.epoch} begins: client states are reset, x is kept")
        if not outcome.advanced:
            self._log(
                f"round {t}: {asked} clients asked, {accepted} replies accepted, {needed} needed:"
                " nothing merged, the round is repeated"
            )
            self.journal.save(ledger, ())
            return
        self.journal.append_participation(t, outcome.merged)
        state.seconds += time.monotonic() - began
        self.journal.save(ledger, outcome.merged)
        self._send_farewells(grid, outcome, mailbox)
        self._log(
            f"round {t + 1}/{rounds}: merged {len(outcome.merged)} of {asked} clients"
            f" ({' '.join(map(str, outcome.merged))}), tau {state.delays.tau[-1]},"
            f" down {mailbox.bytes_down:,} B, up {mailbox.bytes_up:,} B, {time.monotonic() - began:.1f} s"
        )
        if self.on_round:
            self.on_round(ledger, outcome)

    def _exchange(self, grid: Grid, mailbox: Mailbox, scheduled: list[int] | None, needed: int) -> int:
        """Sends orders and receives replies until the round can be closed. Returns how many clients were asked."""
        ledger = self.ledger
        asked: set[int] = set()
        while scheduled != []:  # a round without clients sends nothing, but is merged: some algorithms change x in it
            online = self.roster.online(grid)
            identifying = not asked and not self.roster.complete and mailbox.seconds_left > self.deadline / 2
            # Clients that come online after the round began are asked only if replies are missing.
            if not identifying and (not asked or ledger.accepted_count < needed or scheduled is not None):
                new = [
                    client
                    for client in online
                    if client not in asked and ledger.eligible(client) and (not scheduled or client in scheduled)
                ]
                mailbox.send(WORK, {online[client]: ledger.order(client) for client in new})
                asked.update(new)
            for client, message in mailbox.receive():
                self._receive(client, message, ledger.receive)
            asked -= ledger.take_outdated()
            all_asked = scheduled is None or len(asked) == len(scheduled)
            complete = not mailbox.unanswered and ledger.accepted_count >= needed and all_asked
            if ledger.must_reset or complete or mailbox.seconds_left <= 0:
                break
            time.sleep(POLL_SECONDS)
        return len(asked)

    def _send_farewells(self, grid: Grid, outcome: RoundOutcome, mailbox: Mailbox) -> None:
        """Sends the algorithm's message after the merge, if it has one. A client that misses it counts as absent."""
        farewells = {client: self.ledger.farewell(client) for client in outcome.merged}
        orders = {client: order for client, order in farewells.items() if order}
        if not orders:
            return
        mailbox.deadline = time.monotonic() + self.deadline
        online = self.roster.online(grid)
        mailbox.send(FAREWELL, {online[client]: order for client, order in orders.items() if client in online})
        while mailbox.unanswered and mailbox.seconds_left > 0:
            for client, message in mailbox.receive():
                self._receive(client, message, self.ledger.confirm_farewell)
            if mailbox.unanswered:
                time.sleep(POLL_SECONDS)
        for client in sorted(mailbox.unanswered.values()):
            t = self.ledger.state.t - 1
            self._warn(f"round {t}: client {client} did not confirm the merged model and counts as absent")
        self.journal.save(self.ledger, ())

    def _receive(self, client: int, message: FlowerMessage, take: Callable[[Any], str | None]) -> None:
        """Reads a reply and passes it to `take`, a method of the ledger that returns the reason if it refuses."""
        t = self.ledger.state.t
        if message.has_error() and message.error.code in _EXPIRED:
            return self._warn_silent(client)
        if message.has_error():
            return self._warn(f"round {t}: client {client} failed: {message.error.reason}")
        try:
            reply = to_reply(message.content)
        except UnreadableMessage as error:
            return self._warn(f"round {t}: client {client} sent {error}")
        if reply.step_id.client != client:
            return self._warn(f"round {t}: client {client} replied as client {reply.step_id.client}: refused")
        refusal = take(reply)
        if refusal:
            self._warn(f"round {t}: client {client}'s reply refused: {refusal}")
        return None

    def _evaluate(self, evaluate_fn: Callable[[int, ArrayRecord], Any] | None, result: Result) -> bool:
        """Adds a row to the metrics. Returns False if the loss or the model is not finite."""
        state = self.ledger.state
        x = state.server["x"]
        evaluation = evaluate_fn(state.t, from_vectors({"x": x})) if evaluate_fn else None
        if evaluation is not None:
            result.evaluate_metrics_serverapp[state.t] = evaluation
        tau = state.delays.tau[-1] if state.delays.tau else 0
        row: dict[str, Any] = {"round": state.t, **_plain(evaluation or {})}
        row |= {"communication": state.sent.vectors, "bytes": state.sent.bytes, "tau": tau}
        row |= {"seconds": round(state.seconds, 3), "epoch": state.epoch}
        drift = self.ledger.drift()  # costs a sum over all clients, so it is not computed in every round
        if drift is not None:
            row["drift"] = drift
        self.journal.append_metrics(row)
        state.evaluated = state.t
        self.journal.save(self.ledger, ())
        if evaluation is not None:
            shown = [name for name in row if name in ("train_loss", "test_accuracy", "drift")]
            self._log(f"after {state.t} rounds: {', '.join(f'{name} {row[name]:.4g}' for name in shown)}")
        return bool(x.isfinite().all()) and math.isfinite(row.get("train_loss", 0.0))

    def _scheduled_clients(self, schedule: Schedule, t: int) -> list[int]:
        ids = as_ids("schedule", schedule.active(self.ledger.options.seed, t), self.ledger.n)
        return [client for client in ids.tolist() if self.ledger.eligible(client)]

    def _warn_silent(self, client: int) -> None:
        self._warn(f"round {self.ledger.state.t}: client {client} did not reply within {self.deadline:g} s")

    def _log(self, line: str, level: int = INFO) -> None:
        log(level, "%s", line)
        self.journal.log(line)

    def _warn(self, line: str) -> None:
        self._log(line, WARNING)

    def summary(self) -> None:
        """Flower's loop would call this and the methods below; `start` has its own loop."""
        self._log(repr(self.ledger.algorithm))

    def configure_train(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("Federation.start() has its own round loop")

    configure_evaluate = aggregate_train = aggregate_evaluate = configure_train


def _plain(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics with Python floats, because the metrics file holds their repr and np.float64 has another one."""
    return {name: float(value) if isinstance(value, float) else value for name, value in evaluation.items()}
