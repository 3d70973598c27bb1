"""One round: gather -> downlink -> plan -> engine -> report -> unpack -> digest -> merge -> farewell -> scatter."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..algorithms import Algorithm, Round, Traffic, count
from ..engine import Engine
from ..participation import Ids
from .ranks import Ranks
from .state import RunState


def play_round(
    algorithm: Algorithm,
    state: RunState,
    active: Ids,
    upcoming: Ids | None,
    now: Round,
    engine: Engine,
    seed: int,
    shares: NDArray[np.float64] | None = None,
    ranks: Ranks | None = None,
    sent: Ids | None = None,
) -> Traffic:
    """One round with the cohort stacked: updates the server state and the banks, and returns the traffic.

    `upcoming` are the next round's clients, whose states may be fetched while the device computes this round. `shares`
    are K_i/K of all clients, for an algorithm that adds up displacements of clients with different numbers of steps.
    With several `ranks`, this rank trains its share of the clients. `sent` are the clients that are sent work before
    the round, if training is asynchronous: the active clients then train from the message that each was sent.
    """
    ranks = ranks or Ranks()
    everyone, active = active, ranks.share(active)
    m = len(everyone)
    merging = replace(now, seen=state.meter.seen_after(everyone))
    now = replace(now, seen=state.meter.seen)
    clients, memory = state.clients, state.memory
    client, row, ids = clients.gather(active), memory.gather(active), torch.from_numpy(active)
    client = algorithm.keyed(client, ids, seed)
    down = algorithm.downlink(state.server, now)
    traffic = count(down) * (m if sent is None else len(sent))
    if sent is not None:
        state.outstanding.send(sent, now.t, down)
        down = state.outstanding.arrived(everyone, active) or down
    plan = algorithm.plan(client, down, now)
    G: Tensor = engine(plan, active, now.t)
    if shares is not None:
        G = G * torch.from_numpy(shares[active]).to(G)[:, None]
    if upcoming is not None:
        upcoming = ranks.share(upcoming)
        clients.expect(upcoming)
        memory.expect(upcoming)
    message, client = algorithm.report(client, down, plan, G, now)
    uplink = algorithm.unpack(message, state.server["x"])
    row = algorithm.identify(row, ids)
    contribution, row = algorithm.digest(row, uplink, now)
    total = ranks.sum({name: value.sum(0) for name, value in contribution.items()})
    state.server = algorithm.merge(state.server, total, m, merging)
    farewell = algorithm.farewell(state.server, merging)
    client = algorithm.receive(client, farewell, merging)
    clients.scatter(active, client)
    memory.scatter(active, row)
    return traffic + count(farewell) * m + _of_all_ranks(count(message, stacked=True), ranks)


def _of_all_ranks(sent: Traffic, ranks: Ranks) -> Traffic:
    if ranks.count == 1:
        return sent
    vectors, size = ranks.sum({"sent": torch.tensor([sent.vectors, sent.bytes])})["sent"].tolist()
    return Traffic(vectors, size)
