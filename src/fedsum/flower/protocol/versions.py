"""The versions of a client's state that a client has saved."""

from dataclasses import dataclass

from ...algorithms import Message, State


@dataclass(frozen=True)
class StateVersion:
    """One version of a client's state, and the uplink that was sent with it."""

    version: str
    """its id, derived from the order and the state"""
    base: str
    """the id of the version it was computed from"""
    order: str
    """the id of the order that it answers"""
    serial: int
    """the serial of that order"""
    state: State
    uplink: Message


@dataclass(frozen=True)
class ClientVersions:
    """The versions that a client has saved.

    The server has merged `merged`. `pending` was sent, and the next order tells whether it was merged.
    """

    merged: StateVersion | None = None
    pending: StateVersion | None = None

    @property
    def serial(self) -> int:
        """The largest serial of an order whose result is saved; -1 if there is none."""
        return max((version.serial for version in (self.merged, self.pending) if version), default=-1)

    def find(self, version: str) -> StateVersion | None:
        """The version with this id."""
        for saved in (self.pending, self.merged):
            if saved and saved.version == version:
                return saved
        return None

    def answered(self, order: str) -> StateVersion | None:
        """The pending version if it answers this order."""
        return self.pending if self.pending and self.pending.order == order else None

    def promotes(self, version: StateVersion) -> bool:
        """Whether saving `version` shows that the pending version was merged."""
        return self.pending is not None and self.pending.version == version.base

    def after(self, version: StateVersion) -> "ClientVersions | None":
        """The versions after `version` is saved as pending; None if a result of the same or a later order is saved."""
        if version.serial <= self.serial:
            return None
        return ClientVersions(self.pending if self.promotes(version) else self.merged, version)
