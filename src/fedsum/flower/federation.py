"""The server's round loop on Flower: ask who is there, wait until the deadline, merge, write down, go on."""

import math
import time
from collections.abc import Callable, Mapping
from logging import INFO, WARNING
from typing import Any, NoReturn

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.app import Message as FlowerMessage
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log

from ..base.checks import InputError, integer, real
from ..participation import Schedule
from ..participation.schedule import as_ids
from .journal import Journal
from .ledger import Closed, Ledger
from .mailbox import Mailbox
from .roster import Roster
from .wire import UnreadableMessage, from_vectors, to_reply

WORK, FAREWELL = "train.work", "train.farewell"
_POLL_S = 0.5
# The life of a message ends with the round; which of the two clocks is first does not matter.
_EXPIRED = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)


class Federation(Strategy):
    """Runs a ledger's algorithm over Flower.

    Flower's own loop waits for ever for enough nodes, polls every three seconds and cannot take up a run again;
    this one takes whoever is online (or whom a schedule wants), never waits longer than the deadline, and
    writes a checkpoint before each send.

    Args:
      ledger: the algorithm, its terms, and what is remembered of each client.
      journal: the run folder.
      schedule: who is to take part in which round; None for whoever is online.
      keys: the client of each SuperNode's public key, where SuperNodes authenticate; otherwise they say who they are.
      eval_every: evaluate after every so many rounds, besides before the first and after the last.
      on_round: called after every round that went on, once its checkpoint is written.
    """

    def __init__(
        self,
        ledger: Ledger,
        journal: Journal,
        *,
        schedule: Schedule | None = None,
        keys: Mapping[bytes, int] | None = None,
        eval_every: int = 10,
        on_round: Callable[[Ledger, Closed], None] | None = None,
    ) -> None:
        self.ledger, self.journal, self.schedule, self.keys = ledger, journal, schedule, keys
        self.eval_every = integer("eval_every", eval_every, low=1)
        self.on_round = on_round
        if schedule is not None and schedule.n != ledger.n:
            raise InputError("schedule.n", schedule.n, f"the federation has {ledger.n} clients")

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 3,
        timeout: float = 60.0,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Trains until `num_rounds` rounds are done, those of earlier runs in the same folder included.

        Args:
          grid: Flower's.
          initial_arrays: not needed; the ledger has x^(0).
          num_rounds: T.
          timeout: the deadline of a round, in seconds, and the life of its messages.
          train_config: not needed; the ledger's terms are sent.
          evaluate_config: not needed; evaluation is the server's.
          evaluate_fn: of (rounds done, the model as "x").
        """
        rounds, self.deadline = integer("rounds", num_rounds, low=1), real("deadline", timeout, above=0)
        self.roster = Roster(self.ledger.n, self.keys, self._warn, patience=self.deadline)
        state, result = self.ledger.state, Result()
        if self.journal.resume(self.ledger):
            state = self.ledger.state
            if not state.server["x"].isfinite().all():
                raise InputError("folder", str(self.journal.folder), "holds a run that diverged; use another folder")
            self._say(f"taken up after round {state.t} of {rounds}, job {state.job}")
        else:
            self._say(f"job {state.job}: {self.ledger.algorithm!r}, {self.ledger.n} clients, {rounds} rounds")
            self.journal.save(self.ledger, ())
        status, reason = "failed", ""
        try:
            while True:
                self.journal.status("running", state.t)
                due = state.t % self.eval_every == 0 or state.t == rounds
                # A server that was killed after a checkpoint may have left this to its successor.
                if due and self.journal.judged < state.t and not self._evaluate(state.t, evaluate_fn, result):
                    status, reason = "diverged", f"the loss was no longer finite by round {state.t}"
                    self._warn(f"{reason}; try a smaller eta_l")
                    break
                if state.t >= rounds:
                    status = "finished"
                    break
                self._round(grid, rounds)
        except (KeyboardInterrupt, SystemExit):
            status = "stopped"
            raise
        except BaseException as error:
            reason = repr(error)
            raise
        finally:
            self.journal.status(status, state.t, reason)
        result.arrays = from_vectors({"x": state.server["x"]})
        return result

    def _round(self, grid: Grid, rounds: int) -> Closed:
        """One attempt at the current round."""
        began, t = time.monotonic(), self.ledger.state.t
        wanted = None if self.schedule is None else self._wanted(self.schedule, t)
        need = self.ledger.quorum if wanted is None else min(self.ledger.quorum, len(wanted))
        mailbox = Mailbox(grid, self.journal, until=began + self.deadline)
        asked: set[int] = set()
        while wanted != []:  # nobody is wanted: an empty round, which some algorithms use
            online = self.roster.online(grid)
            opening = not asked and not self.roster.complete and mailbox.left > self.deadline / 2
            # Whoever is there when the round opens takes part; who comes later only if it is needed.
            if not opening and (not asked or self.ledger.heard < need or wanted is not None):
                new = [c for c in online if c not in asked and self.ledger.welcome(c) and (not wanted or c in wanted)]
                mailbox.send(WORK, {online[client]: self.ledger.order(client) for client in new})
                asked.update(new)
            for client, message in mailbox.receive():
                self._hear(client, message)
            complete = not mailbox.open and self.ledger.heard >= need and (wanted is None or len(asked) == len(wanted))
            if self.ledger.void or complete or mailbox.left <= 0:
                break
            time.sleep(_POLL_S)
        if mailbox.left <= 0:
            for client in sorted(mailbox.open.values()):
                self._silent(client)
        closed = self.ledger.close(None if wanted is None else len(wanted))
        if closed.reset:
            self._warn(f"round {t}: {closed.reset}; epoch {self.ledger.state.epoch} begins, x stays")
        if not closed.advanced:
            why = "" if closed.reset else f", {need} needed: not merged, round {t} is held again"
            self._say(f"round {t}: {len(asked)} asked{why}")
            self.journal.save(self.ledger, ())
            return closed
        tau = self.journal.took_part(t, closed.merged)
        self.journal.seconds += time.monotonic() - began
        self.journal.save(self.ledger, closed.merged)
        self._part(grid, closed, mailbox)
        self._say(
            f"round {t + 1}/{rounds}: {len(closed.merged)} of {len(asked)} answered"
            f" ({' '.join(map(str, closed.merged))}), tau {tau},"
            f" down {mailbox.down:,} B, up {mailbox.up:,} B, {time.monotonic() - began:.1f} s"
        )
        if self.on_round:
            self.on_round(self.ledger, closed)
        return closed

    def _part(self, grid: Grid, closed: Closed, mailbox: Mailbox) -> None:
        """The message after the merge, for an algorithm that has one. A client that misses it counts as absent."""
        orders = {client: self.ledger.farewell(client) for client in closed.merged}
        told = {client: order for client, order in orders.items() if order}
        if not told:
            return
        mailbox.until = time.monotonic() + self.deadline
        nodes = self.roster.online(grid)
        mailbox.send(FAREWELL, {nodes[client]: order for client, order in told.items() if client in nodes})
        while mailbox.open and mailbox.left > 0:
            for client, message in mailbox.receive():
                self._hear(client, message, parting=True)
            if mailbox.open:
                time.sleep(_POLL_S)
        for client in sorted(mailbox.open.values()):
            self._warn(
                f"round {self.ledger.state.t - 1}: client {client} missed the merged model, and counts as absent"
            )
        self.journal.save(self.ledger, ())

    def _hear(self, client: int, message: FlowerMessage, *, parting: bool = False) -> None:
        t = self.ledger.state.t
        if message.has_error() and message.error.code in _EXPIRED:
            return self._silent(client)
        if message.has_error():
            return self._warn(f"round {t}: client {client} failed: {message.error.reason}")
        try:
            reply = to_reply(message.content)
        except UnreadableMessage as error:
            return self._warn(f"round {t}: client {client} sent {error}")
        if reply.step_id.client != client:
            return self._warn(f"round {t}: client {client} speaks for client {reply.step_id.client}: refused")
        refusal = self.ledger.parted(reply) if parting else self.ledger.hear(reply)
        if refusal:
            self._warn(f"round {t}: client {client} refused: {refusal}")
        return None

    def _silent(self, client: int) -> None:
        self._warn(f"round {self.ledger.state.t}: client {client} did not answer within {self.deadline:g} s")

    def _evaluate(self, done: int, judge: Callable[[int, ArrayRecord], Any] | None, result: Result) -> bool:
        """Adds a row to the metrics; False if the loss is no longer finite."""
        x = self.ledger.state.server["x"]
        found = judge(done, from_vectors({"x": x})) if judge else None
        if found is not None:
            result.evaluate_metrics_serverapp[done] = found
        sent, tau = self.journal.sent, self.journal.meter.tau
        row: dict[str, Any] = {"round": done, **dict(found or {})}
        row |= {"communication": sent.vectors, "bytes": sent.bytes, "tau": tau[-1] if tau else 0}
        row |= {"seconds": round(self.journal.seconds, 3), "epoch": self.ledger.state.epoch}
        drift = self.ledger.drift()  # over all clients, so not in every round
        if drift is not None:
            row["drift"] = drift
        self.journal.evaluated(row)
        shown = (
            f"{name} {value:.4g}" for name, value in row.items() if name in ("train_loss", "test_accuracy", "drift")
        )
        if found is not None:
            self._say(f"after {done} rounds: {', '.join(shown)}")
        return bool(x.isfinite().all()) and math.isfinite(row.get("train_loss", 0.0))

    def _wanted(self, schedule: Schedule, t: int) -> list[int]:
        ids = as_ids("schedule", schedule.active(self.ledger.seed, t), self.ledger.n)
        return [client for client in ids.tolist() if self.ledger.welcome(client)]

    def _say(self, line: str, level: int = INFO) -> None:
        log(level, "%s", line)
        self.journal.note(line)

    def _warn(self, line: str) -> None:
        self._say(line, WARNING)

    def summary(self) -> None:
        """All that Flower's loop would call is below; this class has its own loop."""
        self._say(repr(self.ledger.algorithm))

    def configure_train(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("Federation.start() has its own round loop")

    configure_evaluate = aggregate_train = aggregate_evaluate = configure_train
