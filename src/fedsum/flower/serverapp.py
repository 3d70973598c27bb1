"""The Flower ServerApp: an app's configuration and its task, run as a federation."""

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
from ..training.options import Options
from .federation import Federation
from .journal import Journal
from .ledger import Ledger, RoundOutcome
from .merge_rules import MergeRules
from .settings import Settings
from .wire import to_vectors


class ServerTask(Protocol):
    """What the server needs of a task. Every `fedsum.tasks.BaseTask` has it."""

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
      task: `task(N)` returns what the server needs: x^(0) and an evaluation.
      algorithm: default: the algorithm that the app's configuration names.
      schedule: the active clients of each round; default: the configuration's, or all clients that are online.
      eta_l: local learning rate as a function of the round; default: the configuration's.
      on_round: called after each round that was merged.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        settings = Settings.read(context.run_config)
        server_task = task(settings.clients)
        options = Options(
            rounds=settings.rounds,
            local_steps=settings.local_steps,
            eta_l=eta_l or settings.rate,
            eta_g=settings.eta_g,
            batch_size=settings.batch_size,
            seed=settings.seed,
            eval_every=settings.eval_every,
        )
        rules = MergeRules(
            quorum=settings.quorum,
            on_loss=settings.on_loss,  # type: ignore[arg-type]  # MergeRules checks it
            norm_limit=settings.norm_limit,
        )
        x0 = server_task.init(settings.seed)
        ledger = Ledger(algorithm or settings.algorithm, x0, settings.clients, options, rules)
        chosen, keys = schedule or settings.build_schedule(), settings.keys()

        def evaluate(rounds_done: int, arrays: ArrayRecord) -> MetricRecord:
            return MetricRecord(dict(server_task.evaluate(to_vectors(arrays)["x"])))

        with closing(Journal(settings.folder)) as journal:
            journal.write_config(_config(settings, ledger.algorithm, chosen))
            federation = Federation(ledger, journal, schedule=chosen, keys=keys, on_round=on_round)
            federation.start(grid, timeout=settings.deadline, evaluate_fn=evaluate)

    return app


def own_data(client: int, n: int, inputs: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
    """`client_data` of a `fedsum.tasks.Task` on the machine of one client, which has only its own data.

    Every other client is represented by one sample, which is never used. So client i has the index i here too, and
    draws the same batches as in simulation.
    """
    return [(inputs, targets) if i == client else (inputs[:1], targets[:1]) for i in range(n)]


def _config(settings: Settings, algorithm: Algorithm, schedule: Schedule | None) -> dict[str, Any]:
    """The run's config.toml, with the keys that a simulation writes."""
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
    """The fields of a dataclass that a TOML file can hold."""
    try:
        fields = asdict(record)
    except TypeError:
        return {}
    return {name: value for name, value in fields.items() if isinstance(value, bool | int | float | str)}
