"""One attempt at a round: orders to clients and their replies, until the attempt can be closed."""

import time

from flwr.serverapp import Grid

from .attendance import Attendance
from .protocol import Ledger
from .reply_reader import ReplyReader
from .transport.mailbox import Mailbox
from .transport.roster import Roster

WORK = "train.work"


class Exchange:
    """Asks the clients that are online, or those that the schedule names, and passes their replies to the ledger.

    It ends when all clients that were asked have replied, `grace` seconds after the quorum, or at the deadline.

    Args:
      ledger: makes the orders and takes the replies.
      mailbox: sends and receives them.
      roster: knows the SuperNode of each client.
      attendance: knows which clients are not asked for a while, and records faults.
      reader: reads replies.
      scheduled: the clients that the schedule names; None: all that are online.
      grace: seconds to wait for the other clients after the quorum is reached; 0: until the deadline.
    """

    def __init__(
        self,
        ledger: Ledger,
        mailbox: Mailbox,
        roster: Roster,
        attendance: Attendance,
        reader: ReplyReader,
        *,
        scheduled: list[int] | None,
        grace: float,
    ) -> None:
        self.ledger, self.mailbox, self.roster, self.attendance = ledger, mailbox, roster, attendance
        self.reader, self.scheduled, self.grace = reader, scheduled, grace
        self.needed = ledger.needed(None if scheduled is None else len(scheduled))
        self.asked: set[int] = set()
        self.skipped: set[int] = set()
        self._began = time.monotonic()
        self._identified = False
        self._quorum_at: float | None = None

    def run(self, grid: Grid, poll_seconds: float) -> None:
        """Exchanges messages until the attempt can be closed."""
        try:
            while (
                self.scheduled != []
            ):  # a round without clients sends nothing, but is merged: some algorithms change x
                self._ask(grid)
                self._receive()
                if self._can_close():
                    break
                if self._overdue():
                    self.mailbox.remind()
                time.sleep(poll_seconds)
            self._record_missing()
        finally:
            self.mailbox.close()

    def _ask(self, grid: Grid) -> None:
        """Sends orders to clients that were not asked yet."""
        online = self.roster.online(grid)
        for client in self.roster.take_restarted():
            self.attendance.returned(client)
        if not self._identified:
            # SuperNodes that were just started are still asked for their client ids.
            if not self.roster.complete and not self._half_over:
                return
            self._identified = True
            available = [client for client in online if self.ledger.eligible(client)]
            wanted = available if self.scheduled is None else self.scheduled
            self.skipped = self.attendance.begin_attempt(wanted, self.needed)
        # Clients that come online after the round began are asked only if replies are missing.
        elif self.scheduled is None and self.ledger.accepted_count >= self.needed:
            return
        new = [client for client in online if client not in self.asked and self._wanted(client)]
        self.mailbox.send(WORK, {online[client]: self.ledger.order(client) for client in new})
        self.asked.update(new)

    def _wanted(self, client: int) -> bool:
        if client in self.skipped or not self.ledger.eligible(client):
            return False
        return self.scheduled is None or client in self.scheduled

    def _receive(self) -> None:
        for client, pulled in self.mailbox.receive():
            fault = self.reader.read(client, pulled, self.ledger.state.t, self.ledger.receive)
            if fault:
                self.attendance.fault(client, fault)
            else:
                self.attendance.returned(client)
            if fault == "unreadable":  # the ledger has seen all other replies
                self.ledger.strike(client)
        self.asked -= self.ledger.take_outdated()
        if self._quorum_at is None and self.ledger.accepted_count >= self.needed:
            self._quorum_at = time.monotonic()

    @property
    def _half_over(self) -> bool:
        return time.monotonic() - self._began > self.mailbox.seconds_left

    def _overdue(self) -> bool:
        """Whether half of the time for missing replies is over."""
        graced = self.grace and self._quorum_at is not None and time.monotonic() > self._quorum_at + self.grace / 2
        return bool(graced) or self._half_over

    def _can_close(self) -> bool:
        if self.mailbox.seconds_left <= 0:
            return True
        if self.ledger.must_reset:
            # If the first reply is "lost", the server cannot tell a lost state, or a lie, from a fault of its own.
            return self.ledger.blames_clients or not self.mailbox.unanswered
        if self._quorum_at is None or not self._identified:
            return False
        all_asked = self.scheduled is None or self.asked | self.skipped >= set(self.scheduled)
        if all_asked and not self.mailbox.unanswered:
            return True
        return bool(self.grace) and time.monotonic() >= self._quorum_at + self.grace

    def _record_missing(self) -> None:
        """Records the clients whose replies are missing. A round that is reset may end before they reply."""
        if self.ledger.must_reset and self.mailbox.seconds_left > 0:
            return
        t = self.ledger.state.t
        within = "" if self.mailbox.seconds_left <= 0 else f"{self.grace:g} s of the quorum"
        for client in sorted(self.mailbox.unanswered.values()):
            self.attendance.fault(client, self.reader.silent(client, t, within))
        for client in sorted(set(self.scheduled or ()) - self.asked - self.skipped):
            self.attendance.fault(client, "offline")
