"""The number of local steps per client, from `local_steps` or `local_epochs`."""

import numpy as np

from ..algorithms import Algorithm
from ..base.checks import InputError
from ..engine import StepCounts
from ..tasks import BaseTask
from .options import Options


def step_counts(task: BaseTask, options: Options) -> StepCounts:
    """K, or K_i of every client if they differ: E epochs of n_i samples are ceil(E n_i / batch_size) steps."""
    if options.local_steps is not None:
        return options.local_steps
    epochs = options.local_epochs or 1  # one of the two is given
    sizes = getattr(task, "client_sizes", None)
    if sizes is None:
        accepted = f"a task with the attribute client_sizes, which {type(task).__name__} does not have; use local_steps"
        raise InputError("local_epochs", epochs, accepted)
    samples = np.asarray(sizes, dtype=np.int64)
    if samples.min() < 1:
        client = int(samples.argmin())
        accepted = (
            "at least one sample: an epoch of such a client has no step; leave the client out, or use local_steps"
        )
        raise InputError(f"task.client_sizes[{client}]", int(samples[client]), accepted)
    counts = -(-samples * epochs // options.batch_size)
    return int(counts[0]) if (counts == counts[0]).all() else counts


def mean_steps(counts: StepCounts) -> float:
    """The mean of K_i over all clients; K itself if all are equal."""
    return counts if isinstance(counts, int) else float(counts.mean())


def refuse_unequal_steps(algorithm: Algorithm, counts: StepCounts) -> None:
    if not isinstance(counts, int) and algorithm.unequal_steps == "refused":
        accepted = f"clients would take {counts.min()} to {counts.max()} steps; use local_steps with {algorithm.label}"
        raise InputError("local_epochs", "different numbers of steps", accepted)
