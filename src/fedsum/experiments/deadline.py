"""The experiment `deadline`: the slower a client's device, the higher the labels of its data.

A round closes when most of its clients are done, so slow devices are seldom in time. Their data matter, because few
fast devices have the same labels.
"""

import numpy as np

from ..participation import Devices, LogUniform
from ..tasks import Task
from .label_order import ordered_by_label

SLOWEST, FASTEST = 1.0, 0.1
"""seconds per step: a factor of ten"""
_SLOW_SHARE = 0.2


def mnist(clients: int = 100, alpha: float = 0.1, seed: int = 0) -> Task:
    """MNIST. The seed is that of the partition and of the devices, so it is also the run's."""
    return _task("mnist", clients, alpha, seed)


def cifar10(clients: int = 100, alpha: float = 0.1, seed: int = 0) -> Task:
    """CIFAR-10, in the same way."""
    return _task("cifar10", clients, alpha, seed)


def digits(clients: int = 30, alpha: float = 0.1, seed: int = 0) -> Task:
    """Handwritten digits, for small runs, in the same way."""
    return _task("digits", clients, alpha, seed)


def _task(name: str, clients: int, alpha: float, seed: int) -> Task:
    devices = Devices(seconds_per_step=LogUniform(FASTEST, SLOWEST))
    seconds = devices.seconds(np.arange(clients), seed, steps=1, down_bytes=0, up_bytes=0)
    by_speed, slow = np.argsort(seconds, kind="stable"), round(_SLOW_SHARE * clients)
    groups = {"slow": np.sort(by_speed[-slow:]), "fast": np.sort(by_speed[:-slow])}
    return ordered_by_label(name, clients, alpha, seed, order=by_speed, groups=groups)
