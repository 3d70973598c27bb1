"""One round: gather -> downlink -> plan -> engine -> report -> digest -> merge -> farewell -> scatter."""

import torch
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
    ranks: Ranks | None = None,
) -> Traffic:
    """One round with the cohort stacked: updates the server state and the banks, and returns the traffic.

    `upcoming` are the next round's clients, whose states may be fetched while the device computes this round. With
    several `ranks`, this rank trains its share of the clients.
    """
    ranks = ranks or Ranks()
    m, active = len(active), ranks.share(active)
    clients, memory = state.clients, state.memory
    client, row = clients.gather(active), memory.gather(active)
    down = algorithm.downlink(state.server, now)
    plan = algorithm.plan(client, down, now)
    G: Tensor = engine(plan, active, now.t)
    if upcoming is not None:
        upcoming = ranks.share(upcoming)
        clients.expect(upcoming)
        memory.expect(upcoming)
    uplink, client = algorithm.report(client, down, plan, G, now)
    row = algorithm.identify(row, torch.from_numpy(active))
    contribution, row = algorithm.digest(row, uplink, now)
    total = ranks.sum({name: value.sum(0) for name, value in contribution.items()})
    state.server = algorithm.merge(state.server, total, m, now)
    farewell = algorithm.farewell(state.server, now)
    client = algorithm.receive(client, farewell, now)
    clients.scatter(active, client)
    memory.scatter(active, row)
    return (count(down) + count(farewell)) * m + _of_all_ranks(count(uplink, stacked=True), ranks)


def _of_all_ranks(sent: Traffic, ranks: Ranks) -> Traffic:
    if ranks.count == 1:
        return sent
    vectors, size = ranks.sum({"sent": torch.tensor([sent.vectors, sent.bytes])})["sent"].tolist()
    return Traffic(vectors, size)
