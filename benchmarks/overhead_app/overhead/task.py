"""A model of 100,100 parameters with little local work, so that the benchmark measures the overhead."""

import torch

from fedsum.tasks import Task

D = 1000


def task(n):
    draw = torch.Generator().manual_seed(0)
    data = [(torch.randn(64, D, generator=draw), torch.randint(100, (64,), generator=draw)) for _ in range(n)]
    return Task(lambda: torch.nn.Linear(D, 100), torch.nn.functional.cross_entropy, data)
