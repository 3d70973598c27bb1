"""Compressors of a client's uplink: a vector as a message that takes fewer bytes, and back."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..base.checks import InputError, probability, set_fields
from .base import Message
from .keyed_uniform import round_stream, stream_uniform


@dataclass(frozen=True)
class Compressor(ABC):
    """The interface of a compressor: a vector as the parts of a message, and back.

    Vectors are [d], or [S, d] for a cohort; then parts and keys have a first dimension S too.
    """

    random: ClassVar[bool] = False
    """whether `compress` draws random numbers, for which it gets a key per client"""

    @property
    @abstractmethod
    def label(self) -> str:
        """The compressor's name in figures and tables."""

    @abstractmethod
    def compress(self, v: Tensor, key: Tensor | None, t: int) -> Message:
        """The parts of the message for v, in round t: `values`, and others by name."""

    @abstractmethod
    def restore(self, parts: Message, like: Tensor) -> Tensor:
        """The vector that the parts stand for, with the length and the device of `like`."""


@dataclass(frozen=True)
class Identity(Compressor):
    """Sends all coordinates, without compression.

    >>> import fedsum
    >>> fedsum.Compressed(fedsum.FedSUM(), Identity()).label
    'FedSUM, uncompressed'
    """

    @property
    def label(self) -> str:
        return "uncompressed"

    def compress(self, v: Tensor, key: Tensor | None, t: int) -> Message:
        return {"values": v}

    def restore(self, parts: Message, like: Tensor) -> Tensor:
        return parts["values"]


@dataclass(frozen=True)
class _Sparse(Compressor):
    """A share of the coordinates.

    Args:
      share: the share of the coordinates that is sent, in (0, 1].
    """

    share: float = 0.01

    def __post_init__(self) -> None:
        set_fields(self, share=probability("share", self.share))

    def count(self, d: int) -> int:
        """The number of coordinates that are sent, of d."""
        return math.ceil(self.share * d - 1e-9)  # 0.1 * 30 is slightly more than 3


def _scattered(values: Tensor, indices: Tensor, d: int) -> Tensor:
    return values.new_zeros(*values.shape[:-1], d).scatter(-1, indices, values)


@dataclass(frozen=True)
class TopK(_Sparse):
    """Sends the coordinates with the largest absolute values, with their indices as 32-bit integers. Biased.

    >>> TopK(0.5).compress(torch.tensor([1.0, -4.0, 3.0, 2.0]), None, 0)
    {'values': tensor([-4.,  3.]), 'indices': tensor([1, 2], dtype=torch.int32)}
    """

    @property
    def label(self) -> str:
        return f"top {100 * self.share:g}%"

    def compress(self, v: Tensor, key: Tensor | None, t: int) -> Message:
        indices = v.abs().topk(self.count(v.shape[-1]), dim=-1).indices
        return {"values": v.gather(-1, indices), "indices": indices.int()}

    def restore(self, parts: Message, like: Tensor) -> Tensor:
        d = like.shape[-1]
        # Indices may come from another machine; an index beyond d would end the process on CUDA.
        return _scattered(parts["values"], parts["indices"].long().clamp(0, d - 1), d)


@dataclass(frozen=True)
class RandomK(_Sparse):
    """Sends coordinates drawn at random in each round, without replacement; the seed is sent instead of the indices.

    Args:
      share: the share of the coordinates that is sent, in (0, 1].
      unbiased: divide the values by the share, so that their mean is the vector. Then `Compressed` needs an `alpha` of
        about `share`; with that alpha it sends what `unbiased=False` sends with alpha = 1.

    >>> import fedsum
    >>> fedsum.Compressed(fedsum.FedSUM(), RandomK(0.1)).label
    'FedSUM, random 10%'
    """

    random: ClassVar[bool] = True

    unbiased: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.unbiased, bool):
            raise InputError("unbiased", self.unbiased, "true or false")

    @property
    def label(self) -> str:
        return f"random {100 * self.share:g}%"

    def compress(self, v: Tensor, key: Tensor | None, t: int) -> Message:
        assert key is not None
        d = v.shape[-1]
        k, stream = self.count(d), round_stream(key, t)
        values = v.gather(-1, _drawn(stream, k, d))
        return {"values": values * (d / k) if self.unbiased else values, "stream": stream}

    def restore(self, parts: Message, like: Tensor) -> Tensor:
        values, d = parts["values"], like.shape[-1]
        return _scattered(values, _drawn(parts["stream"], values.shape[-1], d), d)


def _drawn(stream: Tensor, k: int, d: int) -> Tensor:
    """k of d places, without replacement."""
    return stream_uniform(stream, d).topk(k, dim=-1).indices


@dataclass(frozen=True)
class Int8(Compressor):
    """Sends eight bits per coordinate: a multiple of the largest absolute value / 127, rounded at random. Unbiased.

    >>> import fedsum
    >>> fedsum.Compressed(fedsum.FedSUM(), Int8()).label
    'FedSUM, 8 bits'
    """

    random: ClassVar[bool] = True

    @property
    def label(self) -> str:
        return "8 bits"

    def compress(self, v: Tensor, key: Tensor | None, t: int) -> Message:
        assert key is not None
        scale = v.abs().amax(-1) / 127
        steps = v / torch.where(scale > 0, scale, 1)[..., None]
        noise = stream_uniform(round_stream(key, t), v.shape[-1]).to(v.dtype)
        levels = (steps + noise).floor().clamp(-127, 127)
        return {"values": levels.to(torch.int8), "scale": scale}

    def restore(self, parts: Message, like: Tensor) -> Tensor:
        scale = parts["scale"]
        return parts["values"].to(scale.dtype) * scale[..., None]


COMPRESSORS: dict[str, type[Compressor]] = {cls.__name__: cls for cls in (Identity, TopK, RandomK, Int8)}
"""compressors that files can name"""
