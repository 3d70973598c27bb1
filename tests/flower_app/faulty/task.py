"""Quadratics for quick tests; handwritten digits where something is to be learnt."""

import os

import torch
from torch import nn

from fedsum.tasks import Quadratic, vision


def task(n):
    if os.environ.get("FEDSUM_TEST_TASK") == "digits":
        return vision("digits", clients=n, alpha=0.5, model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    return Quadratic.random(n, 50, noise=0.5, spread=3.0, seed=1).to(torch.device("cpu"), torch.float32)
