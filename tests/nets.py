"""Small torch tasks for tests of the engines."""

import numpy as np
import torch
from torch import nn

from fedsum.tasks import ClientData, Partition, Task

N = 9


def images(n=N, seed=0):
    """Random 1x6x6 images of 3 classes, some clients with fewer samples than a batch."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(3, 25, n)
    cuts = np.cumsum(sizes)
    inputs = torch.from_numpy(draw.normal(size=(cuts[-1], 1, 6, 6))).float()
    targets = torch.from_numpy(draw.integers(0, 3, cuts[-1]))
    parts = np.split(draw.permutation(cuts[-1]), cuts[:-1])
    return ClientData(inputs, targets, Partition(parts, targets.numpy()))


def convolutional(dropout=0.0):
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)]
    return nn.Sequential(*layers, *([nn.Dropout(dropout)] if dropout else []))


def task(dropout=0.0, **options):
    data = images()
    test = data.inputs[:20], data.targets[:20]
    return Task(lambda: convolutional(dropout), nn.functional.cross_entropy, data, test, **options)
