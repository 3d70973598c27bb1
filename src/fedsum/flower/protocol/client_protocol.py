"""The client's side of the protocol: from an order to a reply, with the new state saved before the reply."""

from typing import Protocol

import torch
from torch import Tensor

from ...algorithms import Algorithm, Message, State
from ...engine import client_work, regularised
from ...tasks import BaseTask
from .messages import NEVER, Order, Reply, version_id
from .precision import narrowed, widened
from .probes import stateful, telescopes, totals_are_gradients
from .versions import ClientVersions, StateVersion


class VersionStore(Protocol):
    """Where a client's versions are saved. `storage.ClientStore` saves them on a disk."""

    def read(self) -> ClientVersions: ...

    def save(self, version: StateVersion) -> bool: ...


def answer(order: Order, algorithm: Algorithm, task: BaseTask, store: VersionStore) -> Reply:
    """Executes an order. The result is saved before it is returned, so a repeated order gets the same reply."""
    step_id = order.step_id
    if not stateful(algorithm):
        # Nothing to save. Draws are keyed by (seed, round, client), so a repeated computation has the same result.
        _, vectors = _compute({}, order, algorithm, task)
        return Reply(step_id, order.id, "done", vectors)
    versions = store.read()
    if versions.answered(order.id) is None and versions.serial < order.serial:
        base = _base_state(versions, order, algorithm)
        if base is None:
            return Reply(step_id, order.id, "lost")
        state, vectors = _compute(base, order, algorithm, task)
        version = version_id(order.id, state)
        if store.save(StateVersion(version, step_id.base, order.id, order.serial, state, vectors)):
            return Reply(step_id, order.id, "done", vectors, version)
        versions = store.read()  # another process has saved a result in the meantime, of this order or of a later one
    saved = versions.answered(order.id)
    if saved is None:
        return Reply(step_id, order.id, "ahead", serial=versions.serial)
    return Reply(step_id, order.id, "done", saved.uplink, saved.version)


def _base_state(versions: ClientVersions, order: Order, algorithm: Algorithm) -> State | None:
    """The state that the order names, or None if this client does not have it."""
    step_id = order.step_id
    if step_id.base != NEVER:
        version = versions.find(step_id.base)
        return version.state if version else None
    if order.start is not None:
        return algorithm.init_client(order.start)
    # Without `start`, the initial state depends on the size and type of x only.
    return algorithm.init_client(next(value for value in order.vectors.values() if value.dim() == 1))


def _compute(state: State, order: Order, algorithm: Algorithm, task: BaseTask) -> tuple[State, Message]:
    """The client's next state, and its uplink."""
    now, step_id, down = order.terms.now, order.step_id, order.vectors
    if step_id.farewell:
        return algorithm.receive(state, down, now), {}
    dtype, seed, batch_size = getattr(torch, order.terms.dtype), order.terms.seed, order.terms.batch_size
    state = algorithm.keyed(state, torch.tensor(step_id.client), seed)
    plan = algorithm.plan(narrowed(state, dtype), down, now)
    task = regularised(task, order.terms.clip_norm or None, order.terms.weight_decay)
    G = client_work(task, plan, step_id.client, step_id.t, seed=seed, K=round(now.K), batch_size=batch_size)
    G = _clipped(G, order.terms.clip)
    if algorithm.lossy:  # adds what it sends to its state; in float64, so that rounding errors do not add up
        state = widened(state)
    if (
        algorithm.lossy
        or dtype == torch.float64
        or not (state and telescopes(algorithm) and totals_are_gradients(algorithm))
    ):
        uplink, state = algorithm.report(state, down, plan, G, now)
        return state, uplink
    # The uplink is a change of the state, rounded to the dtype. The next state is the one that the rounded uplink leads
    # to, in float64, so that rounding errors do not add up over the rounds.
    state = widened(state)
    exact, _ = algorithm.report(state, down, plan, G.double(), now)
    uplink = narrowed(exact, dtype)
    ((_, error),) = ((name, exact[name] - uplink[name].double()) for name in exact)
    _, state = algorithm.report(state, down, plan, G.double() - error, now)
    return state, uplink


def _clipped(G: Tensor, largest: float) -> Tensor:
    """G, scaled down to the largest norm that the server merges."""
    size = float(G.double().norm())
    return G * (largest / size) if 0 < largest < size else G
