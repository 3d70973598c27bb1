"""Which clients reply and which do not. Clients that fail again and again are asked less often."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Fault = Literal["silent", "offline", "failed", "unreadable", "refused"]
"""
silent: no reply in time;
offline: the schedule asked for the client, but its SuperNode was not online;
failed: the client app raised an exception;
unreadable: the reply could not be read, or was too large;
refused: the reply was read and refused
"""
LONGEST_PAUSE = 63
"""largest number of attempts in a row in which a client is not asked"""


@dataclass
class ClientRecord:
    """The faults of one client."""

    faults: Counter[str] = field(default_factory=Counter)
    consecutive: int = 0
    """faults since the client was merged last"""
    paused_until: int = 0
    """the first attempt in which it is asked again"""
    skipped: int = 0
    """attempts in which it was not asked"""


class Attendance:
    """After k consecutive faults, a client is not asked in the next 2^(k-1) - 1 attempts, 63 at most.

    So a single fault has no consequence, and a dead client costs a few deadlines instead of one per round.
    """

    def __init__(self) -> None:
        self.attempt = 0
        self.clients: dict[int, ClientRecord] = {}

    def begin_attempt(self, available: Collection[int], needed: int) -> set[int]:
        """The clients that are not asked in the next attempt. Nobody is skipped if the quorum needs them.

        Args:
          available: the clients that are scheduled, or online.
          needed: the quorum.
        """
        self.attempt += 1
        paused = {client for client in available if self._paused(client)}
        if len(available) - len(paused) < needed:
            return set()
        for client in paused:
            self.clients[client].skipped += 1
        return paused

    def fault(self, client: int, kind: Fault) -> int:
        """Records a fault. Returns the number of attempts in which the client will not be asked."""
        record = self.clients.setdefault(client, ClientRecord())
        record.faults[kind] += 1
        record.consecutive += 1
        pause: int = min(2 ** min(record.consecutive - 1, 16) - 1, LONGEST_PAUSE)
        record.paused_until = self.attempt + 1 + pause
        return pause

    def returned(self, client: int) -> None:
        """The client was merged, or its SuperNode was started again: it is asked in every round."""
        if client in self.clients:
            self.clients[client].consecutive = self.clients[client].paused_until = 0

    def dump(self) -> dict[str, Any]:
        """As JSON can hold it. Pauses are not included: after a restart, every client is asked."""
        return {
            str(client): {"faults": dict(record.faults), "skipped": record.skipped, "pause": self._pause(record)}
            for client, record in sorted(self.clients.items())
        }

    @classmethod
    def restored(cls, table: Mapping[str, Any]) -> "Attendance":
        """From a `dump`, for a server that starts again."""
        attendance = cls()
        for client, record in table.items():
            attendance.clients[int(client)] = ClientRecord(Counter(record["faults"]), skipped=record["skipped"])
        return attendance

    def _paused(self, client: int) -> bool:
        return client in self.clients and self.clients[client].paused_until > self.attempt

    def _pause(self, record: ClientRecord) -> int:
        """Attempts until the client is asked again."""
        return max(0, record.paused_until - self.attempt - 1)
