"""Logs the metrics of a run to MLflow: `pip install mlflow-skinny`, then `python examples/mlflow_observer.py`."""

from typing import Any

import mlflow

import fedsum


class MLflow(fedsum.Observer):
    """Logs every evaluation, tau and the number of active clients. Arguments are passed to mlflow.start_run."""

    def __init__(self, **arguments: Any) -> None:
        self._arguments = arguments

    def started(self, run: fedsum.Training) -> None:
        mlflow.start_run(**self._arguments)
        mlflow.log_params(fedsum.RunSpec.of(run.task, run.algorithm, run.schedule, run.options).dump())

    def round_done(self, run: fedsum.Training, done: fedsum.RoundDone) -> None:
        mlflow.log_metrics({"tau": done.tau, "active": len(done.active), **(done.metrics or {})}, step=done.round)

    def closed(self) -> None:
        mlflow.end_run()


if __name__ == "__main__":
    task = fedsum.tasks.vision("digits", clients=30)
    options = {"rounds": 40, "local_steps": 5, "eta_l": 0.1, "batch_size": 32}
    fedsum.simulate(task, fedsum.FedSUM(), fedsum.Biased(30), observers=[MLflow(run_name="first")], **options)
