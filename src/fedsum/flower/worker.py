"""The client's side of the protocol: from an order to a reply, with its state kept safe in between."""

from typing import Protocol

from ..algorithms import Algorithm, Message, State
from ..engine import client_work
from ..tasks import BaseTask
from .probes import stateful
from .protocol import NEVER, Order, Reply
from .store import Kept, Version


class Keeper(Protocol):
    """Where a client's versions are; `store.Store` on a disk."""

    def read(self) -> Kept: ...

    def keep(self, version: Version) -> bool: ...


def answer(order: Order, algorithm: Algorithm, task: BaseTask, store: Keeper) -> Reply:
    """Does what the order asks. What it answers is on the disk before, so asked again it answers the same."""
    slip = order.slip
    if not stateful(algorithm):
        # Nothing to keep: draws are keyed by (seed, round, client), so doing it again is the same answer.
        _, vectors = _done({}, order, algorithm, task)
        return Reply(slip, "done", vectors)
    kept = store.read()
    if kept.newest > (slip.epoch, slip.step):
        return Reply(slip, "ahead", epoch=kept.newest[0])
    again = kept.find(slip.epoch, slip.step)
    if again and again is kept.pending and again.base == slip.last:
        return Reply(slip, "done", again.uplink)
    base = _base(kept, order, algorithm)
    if base is None:
        return Reply(slip, "lost")
    state, vectors = _done(base, order, algorithm, task)
    if not store.keep(Version(slip.epoch, slip.step, slip.last, state, vectors)):
        return Reply(slip, "ahead", epoch=store.read().newest[0])
    return Reply(slip, "done", vectors)


def _base(kept: Kept, order: Order, algorithm: Algorithm) -> State | None:
    """The state that the server counts on, if it is here."""
    slip = order.slip
    if slip.last != NEVER:
        found = kept.find(slip.epoch, slip.last)
        return found.state if found else None
    if order.start is not None:
        return algorithm.init_client(order.start)
    # The initial state does not depend on x then, only on its size and type.
    return algorithm.init_client(next(value for value in order.vectors.values() if value.dim() == 1))


def _done(state: State, order: Order, algorithm: Algorithm, task: BaseTask) -> tuple[State, Message]:
    now, slip = order.terms.now, order.slip
    if slip.farewell:
        return algorithm.receive(state, order.vectors, now), {}
    plan = algorithm.plan(state, order.vectors, now)
    seed, size = order.terms.seed, order.terms.batch_size
    G = client_work(task, plan, slip.client, slip.t, seed=seed, K=now.K, batch_size=size)
    uplink, state = algorithm.report(state, order.vectors, plan, G, now)
    return state, uplink
