"""Theory on quadratics: the exact optimum, Theorem 1's bound, and stability limits."""

import numpy as np
import pytest
import torch

from fedsum import (
    Biased,
    Cyclic,
    Explicit,
    FedAvg,
    FedSUM,
    FedSUMB,
    FedSUMCR,
    Independent,
    Markov,
    Reshuffled,
    Uniform,
    delays,
    simulate,
    theory,
)
from fedsum.experiments.between import Between
from fedsum.tasks import Quadratic

N, ROUNDS = 20, 2000
FAMILY = [FedSUMB(), FedSUM(), FedSUMCR()]
SEEN = [FedSUMB(divide_by_seen=True), FedSUM(divide_by_seen=True), FedSUMCR(divide_by_seen=True)]


def often_empty():
    draw = np.random.default_rng(1)
    return Explicit(N, [np.flatnonzero(draw.random(N) < 0.05 * (t % 3 > 0)) for t in range(ROUNDS)])


SCHEDULES = {
    "uniform": (Uniform(N, 4), 0.1),
    "independent": (Independent(N, 0.2), 0.1),
    "biased": (Biased(N, group=2), 0.1),
    "cyclic": (Cyclic(N, 4), None),
    "reshuffled": (Reshuffled(N, 4), None),
    "markov": (Markov(N, on=0.7, off=0.9), None),
    "often_empty": (often_empty(), None),
}


@pytest.mark.parametrize("pattern", SCHEDULES)
def test_the_family_finds_the_optimum_where_fedavg_stalls(pattern):
    schedule, least = SCHEDULES[pattern]
    task = Quadratic.random(N, 5, seed=0)

    def error(algorithm):
        history = simulate(
            task,
            algorithm,
            schedule,
            rounds=ROUNDS,
            local_steps=5,
            eta_l=0.02,
            eval_every=ROUNDS,
            dtype=torch.float64,
        )
        return history.rows[-1]["error"]

    family, fedavg = [error(algorithm) for algorithm in (*FAMILY, *SEEN)], error(FedAvg())
    assert max(family) < 1e-12
    assert fedavg > (1e6 * max(family) if least is None else least)


@pytest.mark.parametrize("algorithm", FAMILY, ids=lambda a: a.name)
@pytest.mark.parametrize("noise", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("schedule", [Uniform(N, 4), Biased(N, group=2), Uniform(N, N)], ids=["1", "bias", "full"])
def test_theorem_1_bounds_the_mean_squared_gradient(algorithm, schedule, noise):
    T, K = 400, 3
    task = Quadratic.random(N, 5, noise=noise, spread=0.3, seed=4)
    measured = delays(schedule, T)
    taus = {"tau_max": measured.max, "tau_avg": measured.avg}
    known = task.constants()
    F_0 = known.pop("F_0")
    rates = theory.learning_rates(**known, **taus, N=N, K=K, T=T)
    limit = theory.bound(**known, **taus, N=N, K=K, T=T, F_0=F_0)
    history = simulate(
        task,
        algorithm,
        schedule,
        rounds=T,
        local_steps=K,
        eta_l=rates.eta_l,
        eta_g=rates.eta_g,
        eval_every=1,
        dtype=torch.float64,
    )
    mean = np.mean([row["gradient_norm_sq"] for row in history.rows[:-1]])
    assert mean <= limit
    assert mean > limit / 1000  # so that a bound a thousand times smaller would be caught


@pytest.mark.parametrize(
    ("algorithm", "schedule", "limit"),
    [
        (FedSUMB(), Uniform(10, 10), 2.0),
        (FedSUMB(), Cyclic(10, 2), 5 * (1 - np.cos(np.pi / 5))),
        (FedSUMB(), Cyclic(10, 5), 2.0),
        (FedSUM(), Independent(100, 0.2), 2 * 1.8 / (0.2 * (2 - 1 / 5))),
        (Between(steps="FedSUM", server="SCAFFOLD"), Independent(100, 0.2), 2 * 1.8 / (2 - 0.2 / 5)),
    ],
    ids=["B, all", "B, five blocks", "B, two blocks", "p = 0.2", "SCAFFOLD's server"],
)
def test_stability_limits(algorithm, schedule, limit):
    """docs/theory.md: eta_g eta_l K times curvature at which an error neither grows nor shrinks, K = 5."""

    def largest_at_the_end(curvature):
        task = Quadratic(np.full((schedule.n, 1), curvature), np.ones((schedule.n, 1)))
        options = {"rounds": 1000, "local_steps": 5, "eta_l": 1 / 5, "eval_every": 1000, "eval_last": 10}
        history = simulate(task, algorithm, schedule, **options, dtype=torch.float64)
        return max(row["error"] for row in history.rows[1:])

    room = 0.07 if isinstance(schedule, Independent) else 0.03  # wider for random participation
    assert largest_at_the_end((1 - room) * limit) < 0.1
    assert largest_at_the_end((1 + room) * limit) > 10
