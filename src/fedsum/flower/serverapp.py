"""The Flower ServerApp: an app's configuration and its task, run as a federation."""

from collections.abc import Callable
from contextlib import closing
from typing import Protocol

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from torch import Tensor

from ..algorithms import Algorithm
from ..participation import Schedule
from ..tasks import OwnData
from .client_keys import read_client_keys
from .deployment import Deployment
from .federation import Federation
from .journal import Journal
from .protocol import Ledger, RoundOutcome
from .transport.wire import to_vectors


class ServerTask(Protocol):
    """The part of a task that the server needs. Every `fedsum.tasks.BaseTask` has it."""

    def init(self, seed: int) -> Tensor:
        """x^(0), a flat vector."""
        ...

    def evaluate(self, x: Tensor) -> dict[str, float]:
        """The metrics of a model, such as `train_loss` and `test_accuracy`."""
        ...


def server_app(
    task: Callable[[int], ServerTask],
    *,
    algorithm: Algorithm | None = None,
    schedule: Schedule | None = None,
    eta_l: Callable[[int], float] | None = None,
    on_round: Callable[[Ledger, RoundOutcome], None] | None = None,
) -> ServerApp:
    """A ServerApp for `flwr run`.

    Args:
      task: `task(N)` returns a ServerTask for N clients.
      algorithm: default: the algorithm that the app's configuration names.
      schedule: the active clients of each round; default: the configuration's, or all clients that are online.
      eta_l: local learning rate as a function of the round; default: the configuration's.
      on_round: called after each merged round.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        deployment = Deployment.parse(context.run_config).replaced(algorithm, schedule, eta_l)
        spec, n = deployment.spec, deployment.clients
        server_task = task(n)
        ledger = Ledger(spec.algorithm, server_task.init(spec.options.seed), n, spec.options, deployment.rules)
        keys = read_client_keys(deployment.client_keys, n) if deployment.client_keys else None

        def evaluate(rounds_done: int, arrays: ArrayRecord) -> MetricRecord:
            return MetricRecord(dict(server_task.evaluate(to_vectors(arrays)["x"])))

        with closing(Journal(deployment.folder)) as journal:
            federation = Federation(
                ledger,
                journal,
                schedule=deployment.schedule,
                keys=keys,
                grace=deployment.grace,
                limits=deployment.limits(ledger.validator.expected),
                link_speed=deployment.link_speed,
                on_round=on_round,
            )
            with journal.refusals_logged():
                journal.claim(deployment.dump())
            federation.start(grid, timeout=deployment.deadline, evaluate_fn=evaluate)

    return app


def own_data(client: int, n: int, inputs: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
    """`client_data` of a `fedsum.tasks.Task` on the machine of one client, which has only its own data.

    Every other client is represented by one sample, which is never used. So client i has the index i here too, and
    draws the same batches as in simulation. Clients with different weights need a list of all N weights, the same on
    every machine: `Task(..., weights=[0.2, 0.5, 0.3])`.

    >>> import torch
    >>> data = own_data(1, 3, torch.ones(5, 2), torch.zeros(5))
    >>> [len(inputs) for inputs, _ in data]
    [1, 5, 1]
    """
    return OwnData((inputs, targets) if i == client else (inputs[:1], targets[:1]) for i in range(n))
