"""The two illustrations of the FedSUM paper's appendix A, from runs on quadratics in two dimensions.

python benchmarks/illustrations.py [--folder docs]

uplink-merge.png: three rounds in which only client 0 is active, after a round in which all clients were.
local-correction.png: the local steps of client 0 in one of these rounds, with and without the correction.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

import fedsum
from fedsum.figures import plane, save_small
from fedsum.tasks import Quadratic

CENTERS = np.array([[1.2, 4.0], [3.6, -2.2], [4.4, -0.6]])
CURVATURE = np.array([[0.8, 1.0], [1.0, 0.9], [0.9, 0.8]])
TOGETHER, ALONE, K = 1, 3, 5  # rounds with all clients, rounds with client 0 alone, local steps
N = len(CENTERS)
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


def run(algorithm, eta_l, eta_g=1.0):
    """The run's task, with its records."""
    task = Recorded()
    fedsum.simulate(
        task,
        algorithm,
        SCHEDULE,
        rounds=TOGETHER + ALONE,
        local_steps=K,
        eta_l=eta_l,
        eta_g=eta_g,
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


def uncorrected(start, eta_l):
    """Gradient descent of client 0 alone, with steps of length eta_l: FedAvg's local steps."""
    path = [start]
    for _ in range(K - 1):
        path.append(path[-1] - eta_l * CURVATURE[0] * (path[-1] - CENTERS[0]))
    return np.array(path)


def draw(folder):
    """Writes both figures and returns their paths."""
    eta_l = 0.06
    family, fedavg = run(fedsum.FedSUM(), eta_l), run(fedsum.FedAvg(), eta_l)
    models = np.array(family.models)
    optimum = {"x*": family.optimum.numpy()}

    arrows = []
    others = -eta_l * K / N * (latest_gradients(family, 1) + latest_gradients(family, 2))
    for x, following in zip(models[TOGETHER:-1], models[TOGETHER + 1 :], strict=True):
        arrows += [("clients 1 and 2, from memory", x, x + others), ("client 0", x + others, following)]
    figure = plane(
        loss,
        {"FedSUM": models, "FedAvg": np.array(fedavg.models)},
        optimum | {f"minimum of client {i}": center for i, center in enumerate(CENTERS)},
        arrows,
        f"A round with all clients, then {ALONE} with client 0 alone",
    )
    merge = save_small(figure, folder / "uplink-merge.png")

    eta_l = 0.15  # a small eta_g keeps the server's model, where the local steps start, away from x*
    steps, gradients = own_steps(run(fedsum.FedSUM(), eta_l, eta_g=0.2))
    arrows = []
    for x, g, following in zip(steps[:-1], gradients[:-1], steps[1:], strict=True):
        own = x - eta_l / N * g
        arrows += [("own gradient", x, own), ("correction", own, following)]
    figure = plane(
        loss,
        {"with the correction": steps, "without": uncorrected(steps[0], eta_l)},
        optimum | {"minimum of client 0": CENTERS[0]},
        arrows,
        f"{K - 1} local steps of client 0",
    )
    return merge, save_small(figure, folder / "local-correction.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("docs"))
    for path in draw(parser.parse_args().folder):
        print(path)


if __name__ == "__main__":
    main()
