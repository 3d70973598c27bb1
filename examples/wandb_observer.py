"""Logs the metrics of a run to Weights & Biases: `pip install wandb`, then `python examples/wandb_observer.py`.

With WANDB_MODE=offline, no data leaves the machine.
"""

from typing import Any

import wandb

import fedsum


class WandB(fedsum.Observer):
    """Logs every evaluation, tau and the number of active clients. Arguments are passed to wandb.init."""

    def __init__(self, **arguments: Any) -> None:
        self._arguments = arguments
        self._run: Any = None

    def started(self, run: fedsum.Training) -> None:
        spec = fedsum.RunSpec.of(run.task, run.algorithm, run.schedule, run.options)
        self._run = wandb.init(config=spec.dump(), **self._arguments)

    def round_done(self, run: fedsum.Training, done: fedsum.RoundDone) -> None:
        self._run.log({"tau": done.tau, "active": len(done.active), **(done.metrics or {})}, step=done.round)

    def closed(self) -> None:
        if self._run is not None:
            self._run.finish()


if __name__ == "__main__":
    task = fedsum.tasks.vision("digits", clients=30)
    options = {"rounds": 40, "local_steps": 5, "eta_l": 0.1, "batch_size": 32}
    fedsum.simulate(task, fedsum.FedSUM(), fedsum.Biased(30), observers=[WandB(project="fedsum")], **options)
