"""Availability that depends on a client's data."""

import math

import numpy as np

from ..base.checks import InputError
from ..base.keyed import Purpose, rng
from ..participation import Independent
from ..tasks import vision

_LEAST = 1e-3
"""the lowest probability, so that no client is absent forever"""


def follows_labels(n: int, task: str, alpha: float = 0.1, seed: int = 0, sine: bool = False) -> Independent:
    """The FedAWE authors' availability: client i is active with probability p_i = <label shares of client i, phi>.

    phi_c ~ U(0, 1) for the first half of the classes c and U(0, 0.5) for the others.

    Args:
      n: N, the number of clients.
      task: the image set whose partition gives the label shares.
      alpha: the parameter of the partition's Dirichlet distribution.
      seed: the seed of the partition and of phi.
      sine: multiply p_i by 0.3 sin(2 pi t / 20) + 0.7 in round t.
    """
    if not isinstance(task, str):
        raise InputError("task", task, "the name of an image set")
    image_task = vision(task, clients=n, alpha=alpha, seed=seed)
    labels = image_task.targets.numpy()
    classes = int(labels.max()) + 1
    shares = np.stack([np.bincount(labels[part], minlength=classes) / len(part) for part in image_task.partition.parts])
    upper = np.where(np.arange(classes) < classes // 2, 1.0, 0.5)
    phi = rng(seed, Purpose.SCHEDULE).uniform(0, upper)
    p = np.clip(shares @ phi, _LEAST, 1.0)
    if not sine:
        return Independent(n, p)
    return Independent(n, lambda t: p * (0.3 * math.sin(2 * math.pi * t / 20) + 0.7))
