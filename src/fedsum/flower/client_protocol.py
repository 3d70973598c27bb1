"""The client's side of the protocol: from an order to a reply, with the new state saved before the reply."""

from typing import Protocol

from ..algorithms import Algorithm, Message, State
from ..engine import client_work
from ..tasks import BaseTask
from .client_store import ClientVersions, StateVersion
from .probes import stateful
from .protocol import NEVER, Order, Reply


class VersionStore(Protocol):
    """Where a client's versions are saved. `client_store.ClientStore` saves them on a disk."""

    def read(self) -> ClientVersions: ...

    def save(self, version: StateVersion) -> bool: ...


def answer(order: Order, algorithm: Algorithm, task: BaseTask, store: VersionStore) -> Reply:
    """Executes an order. The result is saved before it is returned, so a repeated order gets the same reply."""
    step_id = order.step_id
    if not stateful(algorithm):
        # Nothing to save. Draws are keyed by (seed, round, client), so a repeated computation has the same result.
        _, vectors = _compute({}, order, algorithm, task)
        return Reply(step_id, "done", vectors)
    versions = store.read()
    if versions.newest > (step_id.epoch, step_id.step):
        return Reply(step_id, "ahead", epoch=versions.newest[0])
    pending = versions.pending
    if pending and pending.stamp == (step_id.epoch, step_id.step) and pending.base == step_id.last:
        return Reply(step_id, "done", pending.uplink)
    base = _base_state(versions, order, algorithm)
    if base is None:
        return Reply(step_id, "lost")
    state, vectors = _compute(base, order, algorithm, task)
    if not store.save(StateVersion(step_id.epoch, step_id.step, step_id.last, state, vectors)):
        return Reply(step_id, "ahead", epoch=store.read().newest[0])
    return Reply(step_id, "done", vectors)


def _base_state(versions: ClientVersions, order: Order, algorithm: Algorithm) -> State | None:
    """The state that the order names, or None if this client does not have it."""
    step_id = order.step_id
    if step_id.last != NEVER:
        version = versions.find(step_id.epoch, step_id.last)
        return version.state if version else None
    if order.start is not None:
        return algorithm.init_client(order.start)
    # Without `start`, the initial state depends on the size and type of x only.
    return algorithm.init_client(next(value for value in order.vectors.values() if value.dim() == 1))


def _compute(state: State, order: Order, algorithm: Algorithm, task: BaseTask) -> tuple[State, Message]:
    """The client's next state, and its uplink."""
    now, step_id = order.terms.now, order.step_id
    if step_id.farewell:
        return algorithm.receive(state, order.vectors, now), {}
    plan = algorithm.plan(state, order.vectors, now)
    seed, batch_size = order.terms.seed, order.terms.batch_size
    G = client_work(task, plan, step_id.client, step_id.t, seed=seed, K=now.K, batch_size=batch_size)
    uplink, state = algorithm.report(state, order.vectors, plan, G, now)
    return state, uplink
