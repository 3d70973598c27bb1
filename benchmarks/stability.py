"""Stability limits: the largest eta_g eta_l K times curvature at which an algorithm does not diverge.

python benchmarks/stability.py [--rounds 600] [--out results.json]

All clients have the same parabola, so that only participation makes a difference. The error changes by a factor per
round, and the factor is 1 at the limit. One run tries 48 curvatures, one per dimension; a second run tries 48 more
around the limit. The table also shows the limits that docs/theory.md predicts.
"""

import argparse
import json
import math
import warnings

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import fedsum
from fedsum.experiments.between import Between
from fedsum.tasks import Quadratic

N, ACTIVE, K = 100, 20, 10
PATTERNS = {
    "all": fedsum.Uniform(N, N),
    "independent, p = 0.5": fedsum.Independent(N, 0.5),
    "independent, p = 0.2": fedsum.Independent(N, 0.2),
    "uniform, 20 of 100": fedsum.Uniform(N, ACTIVE),
    "cyclic, 20 of 100": fedsum.Cyclic(N, ACTIVE),
    "reshuffled, 20 of 100": fedsum.Reshuffled(N, ACTIVE),
}
ALGORITHMS = {
    "FedSUM-B": fedsum.FedSUMB(),
    "FedSUM": fedsum.FedSUM(),
    "FedSUM-CR": fedsum.FedSUMCR(),
    "FedSUM's steps, SCAFFOLD's server": Between("FedSUM", "SCAFFOLD"),
    "SCAFFOLD's steps, FedSUM's server": Between("SCAFFOLD", "FedSUM"),
    "SCAFFOLD": fedsum.SCAFFOLD(),
    "MIFA": fedsum.MIFA(),
    "FedVARP": fedsum.FedVARP(),
    "FedAvg": fedsum.FedAvg(),
}
# Above 2 K = 20 local steps diverge, by K factors per round; far above they would overflow.
LOWEST, HIGHEST, POINTS = 0.3, 24.0, 48


class Recorded(Quadratic):
    """Parabolas around 1, one per dimension, that record the error of every evaluated model."""

    def __init__(self, curvatures):
        super().__init__(np.tile(curvatures, (N, 1)), np.ones((N, len(curvatures))))
        self.errors = []

    def to(self, device, dtype):
        return self

    def evaluate(self, x):
        self.errors.append(x.numpy() - 1)
        return {"train_loss": 0.0}


def errors(algorithm, schedule, curvatures, rounds):
    """The model's error after every round, [rounds, curvatures]."""
    task = Recorded(curvatures)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the largest curvatures are expected to overflow
        fedsum.simulate(
            task, algorithm, schedule, rounds=rounds, local_steps=K, eta_l=1 / K, eval_every=1, dtype=torch.float64
        )
    by_round = np.stack(task.errors)
    return by_round[np.isfinite(by_round).all(1)]


def grows(by_round):
    """Per curvature, whether the error is larger in the last third of the rounds than in the second third."""
    third = len(by_round) // 3
    before, after = np.abs(by_round[third : 2 * third]).max(0), np.abs(by_round[2 * third :]).max(0)
    return (after > before) & (before > 1e-9)


def limit(algorithm, schedule, rounds):
    """The smallest curvature at which the error grows, and the period of the error there, if it oscillates."""
    curvatures = np.geomspace(LOWEST, HIGHEST, POINTS)
    for length in (120, rounds):
        by_round = errors(algorithm, schedule, curvatures, length)
        growing = grows(by_round)
        if not growing.any():
            return math.inf, None
        at = int(growing.argmax())
        curvature, series = curvatures[at], by_round[len(by_round) // 3 :, at]
        step = curvatures[1] / curvatures[0]
        curvatures = np.geomspace(curvature / step**2, curvature * step, POINTS)
    spectrum = np.abs(np.fft.rfft(series / np.abs(series).max() * np.hanning(len(series)), 16 * len(series)))
    period = 16 * len(series) / int(spectrum[1:].argmax() + 1)
    return float(curvature), period if period < len(series) / 4 else None


def predicted(algorithm, schedule, local_steps):
    """The limit and the period that docs/theory.md predicts; None if it has no prediction."""
    mixed = algorithm == Between("FedSUM", "SCAFFOLD")
    if not (mixed or isinstance(algorithm, fedsum.FedSUM | fedsum.FedSUMB)):
        return None, None
    ahead = 0.0 if isinstance(algorithm, fedsum.FedSUMB) else (1 - 1 / local_steps) / 2
    if isinstance(schedule, fedsum.Independent | fedsum.Uniform):
        p = schedule.p if isinstance(schedule, fedsum.Independent) else schedule.size / schedule.n
        return 2 * (2 - p) / (2 - p / local_steps if mixed else p * (1 + 2 * ahead)), 2.0
    if mixed or not isinstance(schedule, fedsum.Cyclic):
        return None, None
    M = schedule.n // schedule.size
    angle = np.linspace(1e-4, np.pi, 200_001)
    z = np.exp(1j * angle)
    mean = sum(z**-j for j in range(M)) / M
    steps = -z * (z - 1) / (mean * (z + ahead * (z - 1)))
    real = np.flatnonzero((np.diff(np.sign(steps.imag)) != 0) & (steps.real[1:] > 0))
    first = min(real, key=lambda i: steps.real[i])
    return float(steps.real[first]), float(2 * np.pi / angle[first])


def shown(limit, period):
    return "" if limit is None else f"{limit:.2f}" if period is None else f"{limit:.2f} ({period:.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--out", help="write the numbers here as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the vectors are short
    table = Table(title=f"Largest eta_g eta_l K times curvature, N = {N}, K = {K}; in brackets the period in rounds")
    for head in ("", *PATTERNS):
        table.add_column(head, justify="right" if head else "left")
    results = []
    cases = [(label, pattern) for label in ALGORITHMS for pattern in PATTERNS]
    for label, pattern in track(cases, description="limits", transient=True):
        measured, period = limit(ALGORITHMS[label], PATTERNS[pattern], arguments.rounds)
        theory, its_period = predicted(ALGORITHMS[label], PATTERNS[pattern], K)
        row = {"algorithm": label, "pattern": pattern, "limit": measured, "period": period}
        results.append(row | {"predicted": theory, "predicted_period": its_period})
    for label in ALGORITHMS:
        rows = [row for row in results if row["algorithm"] == label]
        table.add_row(label, *(shown(row["limit"], row["period"]) for row in rows))
        if any(row["predicted"] for row in rows):
            table.add_row("  predicted", *(shown(row["predicted"], row["predicted_period"]) for row in rows))
    Console(width=150).print(table)
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
