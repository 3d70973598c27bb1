"""The server's round loop on Flower: send orders, wait for replies until the deadline, merge, save, repeat."""

import math
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from logging import INFO, WARNING
from typing import Any, NoReturn

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log

from ..base.checks import InputError, real
from ..participation import Schedule, as_ids
from ..training import Options
from .attendance import Attendance
from .exchange import Exchange
from .journal import Journal
from .link_check import check_link
from .operators import apply_requests
from .protocol import STRIKES, Ledger, RoundOutcome
from .reply_reader import ReplyReader
from .transport.mailbox import Mailbox
from .transport.reply_limits import ReplyLimits, escaped
from .transport.reply_puller import run_is_over
from .transport.roster import Roster
from .transport.wire import from_vectors

FAREWELL = "train.farewell"
POLL_SECONDS = 0.5


class Federation(Strategy):
    """Runs the rounds of a `Ledger` on Flower.

    Flower's own loop waits without limit for enough nodes, polls every three seconds and cannot resume a run. This one
    takes the clients that are online (or those that a schedule names), never waits longer than the deadline, and writes
    a checkpoint before each send.

    Args:
      ledger: the algorithm with its options, and the server state.
      journal: the run folder.
      schedule: the active clients of each round; None: all clients that are online.
      keys: the client of each SuperNode's public key. None without authentication: SuperNodes name their client.
      grace: seconds to wait for the other clients after the quorum is reached; 0: until the deadline.
      limits: larger replies are refused; default: a multiple of the expected size.
      link_speed: MB per second of the slowest client's link; 0: not known, and not checked.
      on_round: called after each merged round, when its checkpoint is written.
    """

    def __init__(
        self,
        ledger: Ledger,
        journal: Journal,
        *,
        schedule: Schedule | None = None,
        keys: Mapping[bytes, int] | None = None,
        grace: float = 0.0,
        limits: ReplyLimits | None = None,
        link_speed: float = 0.0,
        on_round: Callable[[Ledger, RoundOutcome], None] | None = None,
    ) -> None:
        self.ledger, self.journal, self.schedule, self.keys = ledger, journal, schedule, keys
        self.on_round = on_round
        self.grace = real("grace", grace, low=0)
        self.limits = limits or ReplyLimits.of(ledger.validator.expected)
        self.link_speed = real("link-speed", link_speed, low=0)
        self.attendance = Attendance()
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
        self.roster = Roster(self.ledger.n, self.keys, self._warn, patience=self.deadline, limits=self.limits)
        self.reader = ReplyReader(self.limits, self._warn, self.deadline)
        with self.journal.refusals_logged():
            self._resume_or_begin(options)
            self._check_link()
        if self.keys is None:
            self._warn("client ids are not verified: any SuperNode can claim to be any client; set client-keys")
        state, result = self.ledger.state, Result()
        status, reason = "failed", ""
        try:
            while True:
                self.journal.set_status("running", state.t)
                apply_requests(self.journal.folder, self.ledger, self._log, self._save)
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
        except BaseException as error:
            status, reason = _ending(error)
            raise
        finally:
            self.journal.set_status(status, state.t, reason)
        result.arrays = from_vectors({"x": state.server["x"]})
        return result

    def _check_link(self) -> None:
        order, uplink = self.ledger.order(0), self.ledger.validator.expected
        self._log(check_link(order, uplink, self.deadline, self.link_speed))

    def _resume_or_begin(self, options: Options) -> None:
        """Restores the state from the checkpoint in the folder, or writes the first checkpoint."""
        recorded = self.journal.resume(self.ledger)
        if recorded is None:
            self._log(
                f"job {self.ledger.state.job}: {self.ledger.algorithm!r}, {self.ledger.n} clients,"
                f" {options.rounds} rounds"
            )
            self._save()
            return
        self.attendance = Attendance.restored(recorded)
        state = self.ledger.state
        if not state.server["x"].isfinite().all():
            raise InputError("folder", str(self.journal.folder), "holds a run that diverged; use another folder")
        self._log(f"resumed after round {state.t} of {options.rounds}, job {state.job}")

    def _attempt_round(self, grid: Grid, rounds: int) -> None:
        """One attempt at the current round."""
        ledger, state = self.ledger, self.ledger.state
        began, t = time.monotonic(), state.t
        scheduled = None if self.schedule is None else self._scheduled_clients(self.schedule, t)
        mailbox = Mailbox(grid, state, began + self.deadline, self.limits)
        exchange = Exchange(
            ledger, mailbox, self.roster, self.attendance, self.reader, scheduled=scheduled, grace=self.grace
        )
        exchange.run(grid, POLL_SECONDS)
        asked, needed = len(exchange.asked), exchange.needed
        accepted = ledger.accepted_count
        outcome = ledger.close_round(None if scheduled is None else len(scheduled))
        for client, reason in outcome.refused.items():
            self._warn(f"round {t}: client {client}'s reply refused: {reason}")
            self.attendance.fault(client, "refused")
        for client, attempts in outcome.struck_out.items():
            self._warn(f"client {client} has {STRIKES} strikes: it is not asked in the next {attempts} attempts")
        if outcome.reset:
            self._warn(f"round {t}: {outcome.reset}; epoch {state.epoch} begins: client states are reset, x is kept")
        if not outcome.advanced:
            self._log(
                f"round {t}: {asked} clients asked, {accepted} replies accepted, {needed} needed:"
                " nothing merged, the round is repeated"
            )
            self._save()
            return
        self.journal.append_participation(t, outcome.merged)
        state.seconds += time.monotonic() - began
        self._save(outcome.merged)
        self._send_farewells(grid, outcome, mailbox)
        self._log(
            f"round {t + 1}/{rounds}: merged {len(outcome.merged)} of {asked} clients"
            f" ({' '.join(map(str, outcome.merged))}), tau {state.delays.tau[-1]},"
            f" down {mailbox.bytes_down:,} B, up {mailbox.bytes_up:,} B, {time.monotonic() - began:.1f} s"
            f"{_listed('not asked after repeated faults', exchange.skipped)}"
            f"{_listed('replied after a second message', mailbox.late)}"
        )
        if self.on_round:
            self.on_round(ledger, outcome)

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
            for client, pulled in mailbox.receive():
                self.reader.read(client, pulled, self.ledger.state.t, self.ledger.confirm_farewell)
            if mailbox.seconds_left < self.deadline / 2:
                mailbox.remind()
            if mailbox.unanswered:
                time.sleep(POLL_SECONDS)
        mailbox.close()
        for client in sorted(mailbox.unanswered.values()):
            t = self.ledger.state.t - 1
            self._warn(f"round {t}: client {client} did not confirm the merged model and counts as absent")
        self._save()

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
        self._save()
        if evaluation is not None:
            shown = [name for name in row if name in (*evaluation, "drift") and isinstance(row[name], int | float)]
            self._log(f"after {state.t} rounds: {', '.join(f'{name} {row[name]:.4g}' for name in shown)}")
        return bool(x.isfinite().all()) and math.isfinite(row.get("train_loss", 0.0))

    def _save(self, changed: Collection[int] = ()) -> None:
        self.journal.save(self.ledger, changed, self.attendance.dump())

    def _scheduled_clients(self, schedule: Schedule, t: int) -> list[int]:
        ids = as_ids("schedule", schedule.active(self.ledger.options.seed, t), self.ledger.n)
        return [client for client in ids.tolist() if self.ledger.eligible(client)]

    def _log(self, line: str, level: int = INFO) -> None:
        line = escaped(line)
        log(level, "%s", line)
        with suppress(OSError):  # a full disk; the checkpoint raises, and Flower's log has the line
            self.journal.log(line)

    def _warn(self, line: str) -> None:
        self._log(line, WARNING)

    def summary(self) -> None:
        """Flower's loop would call this and the methods below; `start` has its own loop."""
        self._log(repr(self.ledger.algorithm))

    def configure_train(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("Federation.start() has its own round loop")

    configure_evaluate = aggregate_train = aggregate_evaluate = configure_train


def _ending(error: BaseException) -> tuple[str, str]:
    """The status of a run that an error has ended, and the reason."""
    # `flwr stop` revokes the run's token and ends the server app: either may come first.
    if run_is_over(error):
        return "stopped", "the SuperLink ended the run, as by `flwr stop`; `flwr run` resumes the run"
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return "stopped", "the server app was ended, as by `flwr stop`; `flwr run` resumes the run"
    if isinstance(error, OSError) and "No space left" in str(error):
        return "failed", f"the server's disk is full: free space, then call `flwr run` again ({error})"
    return "failed", repr(error)


def _listed(what: str, clients: set[int]) -> str:
    return f"; {what}: {' '.join(map(str, sorted(clients)))}" if clients else ""


def _plain(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics with Python floats, because the metrics file holds their repr and np.float64 has another one."""
    return {name: float(value) if isinstance(value, float) else value for name, value in evaluation.items()}
