"""The two illustrations of the FedSUM paper's appendix A, from runs on quadratics in two dimensions.

python benchmarks/illustrations.py [--folder docs]

uplink-merge.png: three rounds in which only client 0 is active, after rounds in which all clients were.
local-correction.png: the local steps of client 0 in one of these rounds, with and without the correction.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

import fedsum
from fedsum.figures import plane, save_small
from fedsum.tasks import Quadratic

CENTERS = np.array([[3.0, 2.6], [3.2, -1.6], [-0.6, 2.4]])
CURVATURE = np.array([[1.0, 0.6], [0.7, 1.0], [0.9, 0.8]])
TOGETHER, ALONE, K = 3, 3, 4  # rounds with all clients, then rounds with client 0 alone; local steps
ETA_L, N = 0.06, len(CENTERS)
SCHEDULE = fedsum.Explicit(N, [[0, 1, 2]] * TOGETHER + [[0]] * ALONE)


class Recorded(Quadratic):
    """Quadratics that record the server's model of every round, and every gradient with its model."""

    def __init__(self):
        super().__init__(CURVATURE, CENTERS)
        self.models, self.local = [], []

    def evaluate(self, x):
        self.models.append(x.numpy().copy())
        return super().evaluate(x)

    def gradient(self, x, client, batch):
        g = super().gradient(x, client, batch)
        self.local.append((client, x.numpy().copy(), g.numpy().copy()))
        return g


def run(algorithm):
    """The run's task, with its records."""
    task = Recorded()
    fedsum.simulate(
        task,
        algorithm,
        SCHEDULE,
        rounds=TOGETHER + ALONE,
        local_steps=K,
        eta_l=ETA_L,
        eval_every=1,
        engine="loop",
        dtype=torch.float64,
    )
    return task


def loss(models):
    distance = models[:, None] - CENTERS
    return (CURVATURE * distance**2).sum(-1).mean(-1) / 2


def latest_gradients(task, client):
    """h_i at the end of the run: the mean gradient of the client's latest round."""
    return np.mean([g for who, _, g in task.local if who == client][-K:], 0)


def own_steps(task):
    """Client 0's local models and gradients in the first round in which it is alone."""
    records = [(x, g) for who, x, g in task.local if who == 0][TOGETHER * K : (TOGETHER + 1) * K]
    return np.array([x for x, _ in records]), np.array([g for _, g in records])


def uncorrected(start):
    """Gradient descent of client 0 alone, with steps of length eta_l: FedAvg's local steps."""
    path = [start]
    for _ in range(K - 1):
        path.append(path[-1] - ETA_L * CURVATURE[0] * (path[-1] - CENTERS[0]))
    return np.array(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("docs"))
    folder = parser.parse_args().folder
    family, fedavg = run(fedsum.FedSUM()), run(fedsum.FedAvg())
    models = np.array(family.models)
    optimum = {"x*": family.optimum.numpy()}

    arrows = []
    others = -ETA_L * K / N * (latest_gradients(family, 1) + latest_gradients(family, 2))
    for x, following in zip(models[TOGETHER:-1], models[TOGETHER + 1 :], strict=True):
        arrows += [("clients 1 and 2, from memory", x, x + others), ("client 0", x + others, following)]
    figure = plane(
        loss,
        {"FedSUM": models, "FedAvg": np.array(fedavg.models)},
        optimum | {f"minimum of client {i}": center for i, center in enumerate(CENTERS)},
        arrows,
        f"Server models: {TOGETHER} rounds with all clients, then {ALONE} with client 0 alone",
    )
    print(save_small(figure, folder / "uplink-merge.png"))

    steps, gradients = own_steps(family)
    arrows = []
    for x, g, following in zip(steps[:-1], gradients[:-1], steps[1:], strict=True):
        own = x - ETA_L / N * g
        arrows += [("own gradient", x, own), ("correction", own, following)]
    figure = plane(
        loss,
        {"with the correction": steps, "without": uncorrected(steps[0])},
        optimum | {"minimum of client 0": CENTERS[0]},
        arrows,
        f"Local models of client 0 in its first round alone, {K - 1} steps",
    )
    print(save_small(figure, folder / "local-correction.png"))


if __name__ == "__main__":
    main()
