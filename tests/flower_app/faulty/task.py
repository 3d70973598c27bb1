"""Quadratics for quick tests, or a linear model on samples from a file, if the test has written one."""

import os
import time

import torch
from torch import nn

from fedsum.tasks import Quadratic, Task


class AllWeights(nn.Module):
    """A model of any size, with a gradient that has no equal parts: Flower would send them once."""

    def __init__(self, d):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(d))

    def forward(self, inputs):
        return inputs.squeeze(1) + self.weights.square().sum()


class Irreproducible(Quadratic):
    """Gradients that differ whenever they are computed again."""

    def gradient(self, x, i, batch):
        noise = torch.randn(len(x), generator=torch.Generator().manual_seed(time.time_ns() % 2**63))
        return super().gradient(x, i, batch) + 0.3 * noise.to(x.dtype)


def task(n):
    if d := os.environ.get("FEDSUM_TEST_PARAMETERS"):
        samples = (torch.zeros(4, 1), torch.zeros(4))
        return Task(lambda: AllWeights(int(d)), lambda out, _: out.mean(), [samples] * n, samples)
    path = os.environ.get("FEDSUM_TEST_DATA")
    if path:
        data = torch.load(path)  # few imports, because a client app is started for every order
        learnt = Task(lambda: nn.Linear(64, 10), nn.functional.cross_entropy, data["clients"], data["test"])
        return learnt.to(torch.device("cpu"), torch.float64)  # float64, so that rounding does not look like a fault
    kind = Irreproducible if os.environ.get("FEDSUM_TEST_IRREPRODUCIBLE") else Quadratic
    return kind.random(n, 50, noise=0.5, spread=3.0, seed=1).to(torch.device("cpu"), torch.float32)
