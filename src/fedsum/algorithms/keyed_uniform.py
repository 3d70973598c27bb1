"""Random numbers that are a function of (client's key, round, coordinate), the same on every device."""

import torch
from torch import Tensor

_STEP, _FIRST, _SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15
"""SplitMix64's constants as signed numbers: torch's 64-bit integers have a sign, and their products wrap around"""


def round_stream(key: Tensor, t: int) -> Tensor:
    """The seeds of a round's numbers, [...] for keys [...] (int64): SplitMix64 of the key and the round."""
    return _mixed(key + ((_STEP * (t + 1) + 2**63) % 2**64 - 2**63))


def stream_uniform(stream: Tensor, d: int) -> Tensor:
    """Numbers in [0, 1), float64, [..., d] for streams [...]: SplitMix64 of the stream and the place.

    >>> one, other = (stream_uniform(round_stream(torch.tensor([5, 6]), t), 1000) for t in (0, 1))
    >>> one.shape, bool((one != other).all()), round(float(one.mean()), 1)
    (torch.Size([2, 1000]), True, 0.5)
    """
    places = torch.arange(1, d + 1, device=stream.device)
    bits = _mixed(stream[..., None] + _STEP * places)
    return _shifted(bits, 11).double() / 2**53


def _mixed(z: Tensor) -> Tensor:
    z = (z ^ _shifted(z, 30)) * _FIRST
    z = (z ^ _shifted(z, 27)) * _SECOND
    return z ^ _shifted(z, 31)


def _shifted(z: Tensor, bits: int) -> Tensor:
    """Shifted to the right, with zeros from the left: torch's shift copies the sign."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
