"""Availability that depends on what a client has."""

import math

import numpy as np

from ..base.checks import InputError
from ..base.keyed import Purpose, rng
from ..participation import Independent
from ..tasks import vision

_LEAST = 1e-3
"""no client is away for ever"""


def follows_labels(n: int, task: str, alpha: float = 0.1, seed: int = 0, sine: bool = False) -> Independent:
    """The FedAWE authors' availability: p_i = <label shares of client i, phi>, phi_c ~ U(0, 1) for the first half
    of the classes and U(0, 0.5) for the others; with `sine`, times 0.3 sin(2 pi t / 20) + 0.7.

    Args:
      n: N, the number of clients.
      task: the image set whose partition it follows.
      alpha: of that partition.
      seed: of the partition and of phi.
    """
    if not isinstance(task, str):
        raise InputError("task", task, "the name of an image set")
    made = vision(task, clients=n, alpha=alpha, seed=seed)
    labels = made.targets.numpy()
    classes = int(labels.max()) + 1
    shares = np.stack([np.bincount(labels[part], minlength=classes) / len(part) for part in made.partition.parts])
    top = np.where(np.arange(classes) < classes // 2, 1.0, 0.5)
    phi = rng(seed, Purpose.SCHEDULE).uniform(0, top)
    p = np.clip(shares @ phi, _LEAST, 1.0)
    if not sine:
        return Independent(n, p)
    return Independent(n, lambda t: p * (0.3 * math.sin(2 * math.pi * t / 20) + 0.7))
