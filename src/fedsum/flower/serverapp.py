"""The server app: an app's configuration and its task, run as a federation."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from typing import Any, Protocol

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from torch import Tensor

from ..algorithms import Algorithm
from ..participation import Schedule
from .federation import Federation
from .journal import Journal
from .ledger import Closed, Ledger
from .settings import Settings
from .wire import to_vectors


class ServerTask(Protocol):
    """What the server needs of a task; any `fedsum.tasks.BaseTask` will do."""

    def init(self, seed: int) -> Tensor:
        """x^(0), a flat vector."""
        ...

    def evaluate(self, x: Tensor) -> dict[str, float]:
        """What to write down of a model, such as `train_loss` and `test_accuracy`."""
        ...


def server_app(
    task: Callable[[int], ServerTask],
    *,
    algorithm: Algorithm | None = None,
    schedule: Schedule | None = None,
    eta_l: Callable[[int], float] | None = None,
    on_round: Callable[[Ledger, Closed], None] | None = None,
) -> ServerApp:
    """A ServerApp for `flwr run`.

    Args:
      task: makes what the server needs, `task(N)`: x^(0) and an evaluation.
      algorithm: default: the one that the app's configuration names.
      schedule: default: the configuration's, or whoever is online.
      eta_l: local learning rate as a function of the round; default: the configuration's.
      on_round: called after every round.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        settings = Settings.read(context.run_config)
        judge = task(settings.clients)
        ledger = Ledger(
            algorithm or settings.algorithm,
            judge.init(settings.seed),
            n=settings.clients,
            local_steps=settings.local_steps,
            eta_l=eta_l or settings.rate,
            eta_g=settings.eta_g,
            batch_size=settings.batch_size,
            seed=settings.seed,
            quorum=settings.quorum,
            on_loss=settings.on_loss,  # type: ignore[arg-type]  # checked there
            norm_limit=settings.norm_limit,
        )
        chosen = schedule or settings.build_schedule()
        options: dict[str, Any] = {"schedule": chosen, "keys": settings.keys(), "eval_every": settings.eval_every}

        def evaluate(done: int, arrays: ArrayRecord) -> MetricRecord:
            return MetricRecord(dict(judge.evaluate(to_vectors(arrays)["x"])))

        with closing(Journal(settings.folder, settings.clients)) as journal:
            journal.configured(_config(settings, ledger.algorithm, chosen))
            federation = Federation(ledger, journal, on_round=on_round, **options)
            federation.start(grid, num_rounds=settings.rounds, timeout=settings.deadline, evaluate_fn=evaluate)

    return app


def own_data(client: int, n: int, inputs: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
    """`client_data` of a `fedsum.tasks.Task` on the machine of one client, which has no other's data.

    The others' places are held by one sample each, never used, so that client i is number i here too, and draws
    the batches that it draws in simulation.
    """
    return [(inputs, targets) if i == client else (inputs[:1], targets[:1]) for i in range(n)]


def _config(settings: Settings, algorithm: Algorithm, schedule: Schedule | None) -> dict[str, Any]:
    """The run's configuration as a simulation writes it."""
    import platform

    import flwr

    import fedsum

    plain = {k: v for k, v in vars(settings).items() if k not in ("algorithm", "schedule", "client_keys", "trace")}
    return plain | {
        "task": {"name": "flower"},
        "algorithm": {"name": algorithm.name, **_fields(algorithm)},
        "schedule": {"name": type(schedule).__name__, **_fields(schedule)} if schedule else {"name": "online"},
        "how": {"engine": "flower"},
        "environment": {
            "fedsum": fedsum.__version__,
            "flwr": flwr.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


def _fields(record: Any) -> dict[str, Any]:
    """The fields of a dataclass that a TOML file can hold as they are."""
    try:
        found = asdict(record)
    except TypeError:
        return {}
    return {name: value for name, value in found.items() if isinstance(value, bool | int | float | str)}
