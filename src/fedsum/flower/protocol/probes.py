"""Properties of an algorithm that the protocol depends on, found by calling the algorithm."""

from collections.abc import Iterable

import torch
from torch import Tensor

from ...algorithms import Algorithm, Message, Round


def stateful(algorithm: Algorithm) -> bool:
    """Whether clients have a state."""
    return bool(algorithm.init_client(torch.zeros(1)))


def needs_start(algorithm: Algorithm) -> bool:
    """Whether a client's initial state depends on x^(0), so that x^(0) must be sent to it."""
    zero, one = (algorithm.init_client(torch.full((1,), value)) for value in (0.0, 1.0))
    return any(not torch.equal(zero[name], one[name]) for name in zero)


def has_farewell(algorithm: Algorithm) -> bool:
    """Whether the algorithm sends a message to its clients after the merge."""
    x, now = torch.zeros(1), Round(t=0, N=1, K=1, eta_l=1.0, eta_g=1.0)
    return bool(algorithm.farewell(algorithm.init_server(x, now), now))


def example_uplink(algorithm: Algorithm, x: Tensor, now: Round) -> Message:
    """An uplink with the names, shapes and types that this algorithm sends for a model like x."""
    server, client = algorithm.init_server(x, now), algorithm.init_client(x)
    down = algorithm.downlink(server, now)
    uplink, _ = algorithm.report(client, down, algorithm.plan(client, down, now), torch.zeros_like(x), now)
    return uplink


def telescopes(algorithm: Algorithm) -> bool:
    """Whether a client's uplinks are changes whose sum depends on its last report only.

    Probed: the contributions of two reports must sum to the contribution of the second report alone. A lossy uplink
    never does so for all gradients.
    """
    if algorithm.lossy:
        return False
    first, second = torch.tensor([1.0, 2.0]), torch.tensor([4.0, -8.0])
    both, alone = _sum_of_contributions(algorithm, [first, second]), _sum_of_contributions(algorithm, [second])
    return all(torch.equal(both[name], alone[name]) for name in both)


def totals_are_gradients(algorithm: Algorithm) -> bool:
    """Whether the contribution of a client's first report is its mean gradient G, as one vector."""
    G = torch.tensor([1.0, 2.0])
    total = list(_sum_of_contributions(algorithm, [G]).values())
    return len(total) == 1 and torch.equal(total[0], G)


def _sum_of_contributions(algorithm: Algorithm, gradients: Iterable[Tensor]) -> Message:
    """The sum of the contributions of a new client's reports of these mean gradients."""
    # eta_l and K are not 1, so that a gradient is told apart from a displacement.
    x, now = torch.zeros(2), Round(t=0, N=1, K=2, eta_l=2.0, eta_g=1.0)
    state, row, total = algorithm.init_client(x), algorithm.init_row(x), dict[str, Tensor]()
    down = algorithm.downlink(algorithm.init_server(x, now), now)
    for G in gradients:
        uplink, state = algorithm.report(state, down, algorithm.plan(state, down, now), G, now)
        part, row = algorithm.digest(row, algorithm.unpack(uplink, x), now)
        total = {name: total.get(name, torch.zeros_like(value)) + value for name, value in part.items()}
    return total


def sums(algorithm: Algorithm) -> list[str]:
    """The names of the server's vectors that depend only on the sum of all contributions, such as FedSUM's y.

    Probed: one merge of two contributions must give the same vector as two merges. A momentum does not.
    """
    x, now = torch.zeros(2), Round(t=0, N=1, K=1, eta_l=1.0, eta_g=1.0)
    server = algorithm.init_server(x, now)
    uplink = algorithm.unpack(example_uplink(algorithm, x, now), x)
    part, _ = algorithm.digest(algorithm.init_row(x), uplink, now)
    one, both = ({name: torch.full_like(value, size) for name, value in part.items()} for size in (1.0, 2.0))
    at_once = algorithm.merge(server, both, 1, now)
    in_turn = algorithm.merge(algorithm.merge(server, one, 1, now), one, 1, now)
    vectors = [name for name, value in server.items() if name != "x" and value.dim()]
    return [name for name in vectors if torch.equal(at_once[name], in_turn[name])]
