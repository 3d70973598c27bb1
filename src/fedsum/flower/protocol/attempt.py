"""The replies to one attempt at a round, validated when they arrive."""

import re

from .messages import NEVER, Reply
from .server_state import ServerState
from .uplink_validator import UplinkValidator

_VERSION = re.compile(r"[0-9a-f]{64}")
_MAX_JUMP = 2**32
"""how far ahead of the server a client may be, in serials"""


class Attempt:
    """Takes the replies to the current orders. Whether a reply answers the current order is for the ledger to check.

    Args:
      state: the server state, whose serial grows beyond that of a client that is ahead.
      validator: validates uplinks.
      stateful: whether the algorithm's clients have a state.
    """

    def __init__(self, state: ServerState, validator: UplinkValidator, *, stateful: bool) -> None:
        self.state, self.validator, self.stateful = state, validator, stateful
        self.accepted: dict[int, Reply] = {}
        """replies that can be merged, by client"""
        self.lost: set[int] = set()
        """clients that have lost their state"""
        self.heard: set[int] = set()
        """clients that sent something"""
        self.offenders: set[int] = set()
        """clients that get a strike, unless most of them do"""
        self._ahead: set[int] = set()
        self._outdated: set[int] = set()

    def receive(self, reply: Reply) -> str | None:
        """Accepts a reply, or returns the reason why it is refused."""
        client = reply.step_id.client
        if client in self.accepted or client in self.lost:
            return "is not the client's first in this round"
        self.heard.add(client)
        refusal = self._take(client, reply)
        if refusal:
            self.offenders.add(client)
        return refusal

    def strike(self, client: int) -> None:
        """Counts an offence that others have seen, such as an unreadable reply."""
        self.heard.add(client)
        self.offenders.add(client)

    def take_outdated(self) -> set[int]:
        """The clients to ask again, because the server's serial was too small for them."""
        outdated, self._outdated = self._outdated, set()
        return outdated

    def _take(self, client: int, reply: Reply) -> str | None:
        if reply.status != "done" and not self.stateful:
            return f"reports {reply.status!r}, but clients of this algorithm have no state"
        if reply.status == "ahead":
            return self._raise_serial(client, reply.serial)
        if reply.status == "lost":
            if reply.step_id.base == NEVER:
                return "reports 'lost', but had no state to lose"
            self.lost.add(client)
            self.offenders.add(client)
            return None
        refusal = version_refusal(reply, self.stateful) or self.validator.refusal(reply.vectors)
        if refusal is None:
            self.accepted[client] = reply
        return refusal

    def _raise_serial(self, client: int, serial: int) -> str | None:
        if client in self._ahead:
            return "reports 'ahead' again"
        if not 0 <= serial < self.state.serial + _MAX_JUMP:
            return f"claims serial {serial}, the server's is {self.state.serial}"
        self.state.serial = max(self.state.serial, serial + 1)
        self._ahead.add(client)
        self._outdated.add(client)
        return None


def version_refusal(reply: Reply, stateful: bool) -> str | None:
    """Why the version that a reply names is refused; None if it is valid."""
    if bool(_VERSION.fullmatch(reply.version)) != stateful:
        return "does not name the version of its state"
    return None
