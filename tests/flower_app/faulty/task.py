"""Handwritten digits on a few clients: small, and real enough to be learnt."""

from torch import nn

from fedsum.tasks import vision


def task(n):
    return vision("digits", clients=n, alpha=0.5, model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
