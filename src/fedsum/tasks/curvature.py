"""The curvature of a task's loss: the largest eigenvalue of the Hessian, by power iteration.

Products with the Hessian are central differences of gradients, so that any task has them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ..base.checks import integer
from ..base.checks import seed as check_seed
from ..base.keyed import Purpose, rng
from .interface import BaseTask

_CLIENTS = 64
_ITERATIONS = 20
_DISTANCE = 1e-3
"""between the model and the points at which gradients are compared; float64 keeps seven digits of the difference"""


class Curvature(NamedTuple):
    """The largest eigenvalue of the Hessian at the initial model.

    >>> Curvature(client=12.0, mean_loss=3.0).client
    12.0
    """

    client: float
    """of a client's own loss, a mean over clients: L, the smoothness of each client's loss"""
    mean_loss: float
    """of the mean of the clients' losses"""


def curvature(
    task: BaseTask,
    *,
    seed: int = 0,
    batch_size: int = 128,
    clients: int = _CLIENTS,
    on_progress: Callable[[float], None] | None = None,
) -> Curvature:
    """Estimates a task's curvature, on one batch of each of a few clients.

    Args:
      task: any task; gradients are computed on the CPU in float64.
      seed: of the initial model, the clients and their batches.
      batch_size: samples per client.
      clients: the number of clients; all if the task has fewer.
      on_progress: called with the share of the work that is done, often. Large models take minutes.

    >>> from fedsum.tasks import Quadratic
    >>> found = curvature(Quadratic([[1.0, 3.0], [4.0, 2.0]], [[0.0, 0.0], [1.0, 1.0]]))
    >>> round(found.client, 3), round(found.mean_loss, 3)
    (3.5, 2.5)
    """
    check_seed(seed)
    integer("batch_size", batch_size, low=1)
    task = task.to(torch.device("cpu"), torch.float64)
    x = task.init(seed)
    chosen = rng(seed, Purpose.CURVATURE).permutation(task.n)[: integer("clients", clients, low=1)].tolist()
    batches = {client: task.batches(seed, 0, client, 1, batch_size)[0] for client in chosen}
    computed, gradients = 0, 2 * _ITERATIONS * 2 * len(chosen)

    def mean_gradient(y: Tensor, of: Sequence[int]) -> Tensor:
        nonlocal computed
        computed += len(of)
        if on_progress:
            on_progress(computed / gradients)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)  # dropout must draw the same masks for both gradients
            return torch.stack([task.gradient(y, client, batches[client]) for client in of]).mean(0)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # gradients of one batch are small: more threads take longer on a busy machine
    try:
        own = [_largest_eigenvalue(partial(mean_gradient, of=[client]), x) for client in chosen]
        return Curvature(sum(own) / len(own), _largest_eigenvalue(partial(mean_gradient, of=chosen), x))
    finally:
        torch.set_num_threads(threads)


def _largest_eigenvalue(gradient: Callable[[Tensor], Tensor], x: Tensor) -> float:
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    direction /= direction.norm()
    eigenvalue = 0.0
    for _ in range(_ITERATIONS):
        step = _DISTANCE * direction
        product = (gradient(x + step) - gradient(x - step)) / (2 * _DISTANCE)
        eigenvalue = float(product.norm())
        if not eigenvalue > 0:
            return 0.0  # a loss without curvature, such as a dead network
        direction = product / eigenvalue
    return eigenvalue
