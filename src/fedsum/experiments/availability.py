"""The protocol of FedAWE's authors: availability that follows the clients' labels, drawn as their public code draws it.

Xiang et al., "Efficient Federated Learning against Heterogeneous and Non-stationary Client Unavailability", 2024.
A seed determines the partition and phi exactly as in their code, which uses NumPy's legacy generator.
Their runs use the seeds 3, 4 and 6.
"""

import math

import numpy as np
from numpy.typing import NDArray

from ..base.checks import integer
from ..participation import Independent
from ..tasks import Augment, Partition, Task, load, vision

_CLIENTS, _ALPHA = 100, 0.1


def cifar10(clients: int = _CLIENTS, alpha: float = _ALPHA, seed: int = 3) -> Task:
    """CIFAR-10: one crop and one flip per batch, Kaiming normal initialisation in all layers but the last."""
    return _task("cifar10", clients, alpha, seed, flip=True)


def svhn(clients: int = _CLIENTS, alpha: float = _ALPHA, seed: int = 3) -> Task:
    """SVHN: one crop per batch, Kaiming normal initialisation in all layers but the last."""
    return _task("svhn", clients, alpha, seed, flip=False)


def digits(clients: int = _CLIENTS, alpha: float = _ALPHA, seed: int = 3) -> Task:
    """The same protocol on handwritten digits, for small runs: no augmentation."""
    split, _ = _draws("digits", clients, alpha, seed)
    return vision("digits", partition=split, init="kaiming")


def stationary(n: int, images: str, alpha: float = _ALPHA, seed: int = 3) -> Independent:
    """Client i is active with probability p_i = <label shares of client i, phi>.

    phi_c ~ U(0, 1) for the first half of the classes c and U(0, 0.5) for the others.

    Args:
      n: N, the number of clients.
      images: the image set whose partition gives the label shares.
      alpha: the parameter of the partition's Dirichlet distribution.
      seed: the seed of the partition and of phi, the same as the task's.
    """
    return Independent(n, _probabilities(n, images, alpha, seed))


def sine(n: int, images: str, alpha: float = _ALPHA, seed: int = 3) -> Independent:
    """As `stationary`, with p_i multiplied by 0.3 sin(2 pi t / 20) + 0.7 in round t."""
    p = _probabilities(n, images, alpha, seed)
    return Independent(n, lambda t: p * (0.3 * math.sin(2 * math.pi * t / 20) + 0.7))


def _probabilities(n: int, images: str, alpha: float, seed: int) -> NDArray[np.float64]:
    split, phi = _draws(images, n, alpha, seed)
    p: NDArray[np.float64] = np.minimum(split.counts / split.sizes[:, None] @ phi, 1.0)
    return p


def _task(name: str, clients: int, alpha: float, seed: int, *, flip: bool) -> Task:
    split, _ = _draws(name, clients, alpha, seed)
    # The authors pad standardized images with zeros, which is the set's mean colour.
    mean_colour = tuple(round(255 * mean) for mean in load(name).mean)
    augment = Augment(4, flip, per_batch=True, fill=mean_colour)
    return vision(name, partition=split, init="kaiming", augment=augment)


def _draws(name: str, clients: int, alpha: float, seed: int) -> tuple[Partition, NDArray[np.float64]]:
    """The partition and phi, in the order in which the authors' code draws them."""
    integer("seed", seed, low=0, high=2**32 - 1)
    labels = load(name).train_targets.numpy()
    classes = int(labels.max()) + 1
    # NumPy's legacy generator, because only it reproduces the authors' draws.
    draw = np.random.RandomState(seed)
    shares = draw.dirichlet(alpha * np.ones(classes), clients)
    shares = np.cumsum(shares, axis=0) / shares.sum(axis=0)
    parts: list[list[NDArray[np.int64]]] = [[] for _ in range(clients)]
    for label in range(classes):
        samples = np.flatnonzero(labels == label)  # in the set's own order
        cuts = np.round(len(samples) * shares[:-1, label]).astype(np.int64)
        for part, piece in zip(parts, np.split(samples, cuts), strict=True):
            part.append(piece)
    phi = np.concatenate([draw.uniform(0, 1, classes // 2), draw.uniform(0, 0.5, classes - classes // 2)])
    return Partition([np.concatenate(part) for part in parts], labels), phi
