"""Which clients are asked: strikes, which expire, and clients that the operator has evicted."""

from collections.abc import Iterable
from dataclasses import dataclass

from ...base.checks import InputError, integer
from .server_state import ServerState

WINDOW = 50
"""attempts at a round after which a strike no longer counts"""
STRIKES = 3
"""strikes in the window with which a client is not asked"""


@dataclass(frozen=True)
class ClientRecord:
    """What the server knows of a client, for operators."""

    client: int
    round: int
    """the last round in which it was merged in this epoch; -1: none"""
    strikes: int
    """strikes that still count"""
    skipped: int
    """attempts at a round until it is asked again; 0: it is asked now"""
    evicted: bool
    losses: int
    """how often it has lost its state"""
    outliers: int
    """uplinks beyond the bound"""


def eligible(state: ServerState, client: int) -> bool:
    """Whether this client exists, is not evicted, and has too few strikes to be skipped."""
    return 0 <= client < len(state.delays.last) and client not in state.evicted and not skipped(state, client)


def skipped(state: ServerState, client: int) -> int:
    """Attempts at a round until this client is asked again; 0: it is asked now."""
    strikes = _recent(state, client)
    return 0 if len(strikes) < STRIKES else strikes[-STRIKES] + WINDOW - state.attempts


def left(state: ServerState) -> int:
    """How many clients are not evicted."""
    return len(state.delays.last) - len(state.evicted)


def asked_now(state: ServerState) -> int:
    """How many clients are eligible, at a cost proportional to the number of clients with strikes."""
    return left(state) - sum(client not in state.evicted and bool(skipped(state, client)) for client in state.strikes)


def blamed(offenders: set[int], heard: set[int]) -> bool:
    """Whether offences are the clients' fault. If more than half of the clients that replied are offenders, the likely
    cause is the server, for example after a restore from a backup.
    """
    return 2 * len(offenders) <= len(heard)


def punish(state: ServerState, offenders: set[int], heard: set[int]) -> dict[int, int]:
    """Gives a strike to each client in `offenders`, if they are to blame. `heard` are the clients that replied in this
    attempt. If no client would be left to ask, all strikes are removed.

    Returns:
      The offenders that are not asked from now on, and in how many attempts.
    """
    if blamed(offenders, heard):
        for client in offenders:
            state.strikes[client] = [*_recent(state, client), state.attempts][-STRIKES:]
    state.attempts += 1
    state.strikes = {client: strikes for client in state.strikes if (strikes := _recent(state, client))}
    if not asked_now(state):
        state.strikes = {}
    return {client: attempts for client in sorted(offenders) if (attempts := skipped(state, client))}


def exclude(state: ServerState, client: int) -> None:
    """Marks a client as evicted."""
    integer("client", client, low=0, high=len(state.delays.last) - 1)
    if client in state.evicted:
        raise InputError("client", client, "is evicted already")
    if left(state) == 1:
        raise InputError("client", client, "is the last one that is not evicted")
    state.evicted = sorted([*state.evicted, client])


def include(state: ServerState, client: int) -> None:
    """Undoes `exclude`, and forgives the client's strikes."""
    if client not in state.evicted:
        raise InputError("client", client, f"is not evicted; evicted clients: {state.evicted}")
    state.evicted = [other for other in state.evicted if other != client]
    state.strikes.pop(client, None)


def records(state: ServerState, clients: Iterable[int]) -> list[ClientRecord]:
    """One record per client."""
    return [
        ClientRecord(
            client=client,
            round=state.last[client].step // 2 if client in state.last else -1,
            strikes=len(_recent(state, client)),
            skipped=skipped(state, client),
            evicted=client in state.evicted,
            losses=state.losses.get(client, 0),
            outliers=state.outliers.get(client, 0),
        )
        for client in clients
    ]


def _recent(state: ServerState, client: int) -> list[int]:
    """The attempts of the strikes that still count."""
    return [strike for strike in state.strikes.get(client, ()) if state.attempts - strike < WINDOW]
