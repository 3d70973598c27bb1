"""The demos: the FedSUM family and baselines on heterogeneous clients under biased participation."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ..algorithms import MIFA, SCAFFOLD, Algorithm, FedAvg, FedSUM, FedSUMB, FedSUMCR
from ..participation import Biased, Schedule
from ..simulate import simulate
from ..tasks import BaseTask, Quadratic, vision
from ..training import History, RoundDone


@dataclass(frozen=True)
class Demo:
    """A comparison of algorithms on one task and one schedule."""

    title: str
    task: Callable[[], BaseTask]
    schedule: Schedule
    algorithms: dict[str, Algorithm]
    rounds: int
    options: dict[str, Any]
    columns: tuple[str, ...]
    """the metrics to draw; the last one is the main metric"""

    def run(self, rounds: int, on_round: Callable[[str, RoundDone], None]) -> dict[str, History]:
        """Runs every algorithm for `rounds` rounds and returns the histories by label."""
        task = self.task()
        runs = {}
        for label, algorithm in self.algorithms.items():
            runs[label] = simulate(
                task,
                algorithm,
                self.schedule,
                rounds=rounds,
                eval_every=max(1, rounds // 40),
                on_round=partial(on_round, label),
                progress=False,
                **self.options,
            )
        return runs


DEMOS = {
    "digits": Demo(
        title="Handwritten digits on 30 clients, Dirichlet(0.1), active with probability 0.5 down to 0.05",
        task=lambda: vision("digits", clients=30, alpha=0.1),
        schedule=Biased(30, group=3),
        algorithms={
            "FedSUM": FedSUM(),
            "FedSUM-CR": FedSUMCR(),
            "SCAFFOLD": SCAFFOLD(),
            "MIFA": MIFA(),
            "FedAvg": FedAvg(),
        },
        rounds=150,
        options={"local_steps": 10, "eta_l": 0.1, "batch_size": 32},
        columns=("train_loss", "test_accuracy"),
    ),
    "quadratic": Demo(
        title="20 heterogeneous clients, active with probability 0.5 down to 0.05; exact gradients",
        task=lambda: Quadratic.random(20, 10),
        schedule=Biased(20, group=2),
        algorithms={
            "FedSUM": FedSUM(),
            "FedSUM-CR": FedSUMCR(),
            "FedSUM-B": FedSUMB(),
            "SCAFFOLD": SCAFFOLD(),
            "FedAvg": FedAvg(),
        },
        rounds=1000,
        options={"local_steps": 5, "eta_l": 0.02, "dtype": torch.float64},
        columns=("error",),
    ),
}
