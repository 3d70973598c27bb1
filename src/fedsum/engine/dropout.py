"""Randomness inside a gradient (dropout), keyed like all other randomness."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from ..base.keyed import Purpose, torch_seed
from ..tasks import BaseTask

_VALUES = 2**16
"""of the random integers that masks are made of"""
_RAREST = 0.01
"""smallest probability that these integers represent to a thousandth"""


@contextmanager
def keyed_noise(
    task: BaseTask, seed: int, t: int, place: int, device: torch.device, purpose: Purpose = Purpose.DROPOUT
) -> Iterator[None]:
    """Inside, torch draws from a generator keyed by (seed, round, place); the user's generators are left unchanged.

    `place` is the client if clients are trained one by one, and the chunk if they are stacked.
    """
    if not task.has_dropout:
        yield
        return
    key = torch_seed(seed, purpose, t, place)
    cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []):
        torch.default_generator.manual_seed(key)
        if cuda:
            torch.cuda.manual_seed(key)
        yield


def supports_mask(p: float) -> bool:
    """Whether 16 bits are enough for this probability."""
    return _RAREST <= p <= 1 - _RAREST


def dropout_mask(values: Tensor, p: float) -> Tensor:
    """A mask for these values on a CPU: 0 with probability p, else 1/(1 - p).

    It is drawn ten times as fast as torch's, except on Intel's CPUs. Every value takes 16 random bits. The probability
    is rounded to 16 bits, and the scale fits the rounded one. The key is a number of torch's generator, which is keyed
    by `keyed_noise`. Where checkpointing computes a layer again, torch repeats the key, and the mask is the same.

    >>> sorted(dropout_mask(torch.ones(1000), p=0.5).unique().tolist())
    [0.0, 2.0]
    """
    bits = np.random.Generator(np.random.SFC64(int(torch.randint(2**63 - 1, ()))))
    count, dropped = values.numel(), round(p * _VALUES)
    words = bits.integers(0, 2**64, -(-count // 4), dtype=np.uint64)
    integers = torch.from_numpy(words.view(np.int16)[:count])
    mask = torch.empty_like(values, requires_grad=False)
    in_memory_order = mask.as_strided((count,), (1,))
    torch.ge(integers, dropped - _VALUES // 2, out=in_memory_order)
    in_memory_order *= _VALUES / (_VALUES - dropped)
    return mask
