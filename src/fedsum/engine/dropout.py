"""Randomness inside a gradient (dropout), keyed like all other randomness."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..base.keyed import Purpose, torch_seed
from ..tasks import BaseTask


@contextmanager
def keyed_noise(task: BaseTask, seed: int, t: int, place: int, device: torch.device) -> Iterator[None]:
    """Inside, torch draws from a generator keyed by (seed, round, place); the user's generators are left unchanged.

    `place` is the client if clients are trained one by one, and the chunk if they are stacked.
    """
    if not task.has_dropout:
        yield
        return
    key = torch_seed(seed, Purpose.DROPOUT, t, place)
    cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []):
        torch.default_generator.manual_seed(key)
        if cuda:
            torch.cuda.manual_seed(key)
        yield
