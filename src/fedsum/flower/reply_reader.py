"""From a pulled reply to the ledger, with a line in the log for each reply that is not merged."""

import time
from collections.abc import Callable

from flwr.common.constant import ErrorCode

from .attendance import Fault
from .protocol import Reply
from .transport.reply_limits import ReplyLimits
from .transport.reply_puller import PulledReply
from .transport.wire import UnreadableMessage, clock_of, to_reply

# Messages expire at the deadline. Flower's clock may be ahead of ours, so an expired message is a missing reply.
_EXPIRED = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)


class ReplyReader:
    """Reads replies. Client text is escaped and cut before it is logged.

    Args:
      limits: how much client text is shown.
      warn: called with each warning.
      deadline: seconds per round; a clock that is further off is reported.
    """

    def __init__(self, limits: ReplyLimits, warn: Callable[[str], None], deadline: float) -> None:
        self.limits, self.warn, self.deadline = limits, warn, deadline
        self._wrong_clocks: set[int] = set()

    def read(self, client: int, pulled: PulledReply, t: int, take: Callable[[Reply], str | None]) -> Fault | None:
        """Passes a reply to `take`, a method of the ledger that returns a reason if it refuses.

        Returns:
          The client's fault, or None if its reply was accepted.
        """
        message = pulled.message
        if message is None:
            return self._fault(client, t, "unreadable", f"sent {self.limits.shown(pulled.refusal)}")
        if message.has_error() and message.error.code in _EXPIRED:
            return self.silent(client, t)
        if message.has_error():
            return self._fault(client, t, "failed", f"failed: {self.limits.shown(message.error.reason)}")
        try:
            reply = to_reply(message.content)
        except UnreadableMessage as error:
            return self._fault(client, t, "unreadable", f"sent {self.limits.shown(error)}")
        self._check_clock(client, clock_of(message.content))
        if reply.step_id.client != client:
            text = f"replied as client {self.limits.shown(reply.step_id.client)}: refused"
            return self._fault(client, t, "refused", text)
        refusal = take(reply)
        if refusal:
            self.warn(f"round {t}: client {client}'s reply refused: {self.limits.shown(refusal)}")
            return "refused"
        return None

    def silent(self, client: int, t: int, within: str = "") -> Fault:
        """A client did not reply in time, which is before the deadline unless `within` says otherwise."""
        return self._fault(client, t, "silent", f"did not reply within {within or f'{self.deadline:g} s'}")

    def _fault(self, client: int, t: int, fault: Fault, text: str) -> Fault:
        self.warn(f"round {t}: client {client} {text}")
        return fault

    def _check_clock(self, client: int, clock: float | None) -> None:
        """Warns once per client if its clock is wrong. A round's duration hides an error of up to a deadline."""
        ahead = 0.0 if clock is None else clock - time.time()
        if abs(ahead) <= self.deadline or client in self._wrong_clocks:
            return
        self._wrong_clocks.add(client)
        where = "ahead of" if ahead > 0 else "behind"
        self.warn(
            f"client {client}'s clock is {abs(ahead):,.0f} s {where} the server's: synchronise it. With authentication,"
            " Flower refuses a SuperNode whose clock is wrong"
        )
