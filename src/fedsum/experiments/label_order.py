"""Tasks in which a property of a client's device goes with the labels of its data."""

from typing import Any

import numpy as np

from ..participation import Ids
from ..tasks import Partition, Task, load, vision


def ordered_by_label(name: str, clients: int, alpha: float, seed: int, *, order: Ids, groups: dict[str, Ids]) -> Task:
    """An image task with a Dirichlet partition, whose parts are given to the clients by their mean label.

    Args:
      name: the image set.
      clients: N.
      alpha: the parameter of the Dirichlet distribution.
      seed: of the partition.
      order: all clients; the first one gets the part with the lowest mean label, the last one that with the highest.
      groups: groups of clients for per-client evaluation.
    """
    labels = load(name).train_targets.numpy()
    split = vision(name, clients=clients, alpha=alpha, seed=seed, refill=True).partition
    by_label = np.argsort([labels[part].mean() for part in split.parts], kind="stable")
    part_of = dict(zip(order.tolist(), by_label.tolist(), strict=True))
    task: Any = vision(name, partition=Partition([split.parts[part_of[i]] for i in range(clients)], labels))
    task.client_groups = groups
    made: Task = task
    return made
