"""The family in one picture: clients that disagree, some of them seldom there."""

from collections.abc import Callable
from functools import partial

import torch

from .algorithms import FedAvg, FedSUM, FedSUMB, FedSUMCR
from .history import History
from .participation import Biased
from .simulate import RoundDone, simulate
from .tasks import Quadratic

ALGORITHMS = {"FedAvg": FedAvg(), "FedSUM-B": FedSUMB(), "FedSUM": FedSUM(), "FedSUM-CR": FedSUMCR()}
TITLE = "20 clients that disagree, taking part with probability 0.5 down to 0.05"


def run(rounds: int, on_round: Callable[[str, RoundDone], None]) -> dict[str, History]:
    """The demo's runs by label: heterogeneous quadratics, biased participation, exact gradients."""
    task, schedule = Quadratic.random(20, 10), Biased(20, group=2)
    runs = {}
    for label, algorithm in ALGORITHMS.items():
        runs[label] = simulate(
            task,
            algorithm,
            schedule,
            rounds=rounds,
            local_steps=5,
            eta_l=0.02,
            eval_every=max(1, rounds // 200),
            dtype=torch.float64,
            on_round=partial(on_round, label),
        )
    return runs
