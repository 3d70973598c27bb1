"""The layout of a client's parameters in one row of memory, chosen for the speed of the device's kernels.

A step reads and writes a row element by element, so that the order of its elements is free. A cohort's vectors are
brought into this order once per round.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

ALIGNMENT = 64
"""parameters begin at multiples of this many elements: kernels for unaligned memory are slower"""


class _Segment(NamedTuple):
    """Neighbouring parameters that are copied together: the same elements in the same order."""

    source: slice
    """in a task's flat vector"""
    target: slice
    """in a row"""
    filter_shape: tuple[int, ...] | None
    """of a convolution's filters, which are stored in channels_last order"""


class FlatLayout:
    """Parameters at aligned places in a row.

    Args:
      shapes: of the parameters, in the order of the task's flat vector.
      filters: which parameters are filters that are stored in channels_last order; a GPU's fastest convolutions read
        them in this order.

    >>> layout = FlatLayout([(2, 3), (5,)], [False, False])
    >>> layout.d, layout.size
    (11, 128)
    >>> rows = layout.rows(1, torch.zeros(11))
    >>> layout.load(rows, torch.arange(11.0))
    >>> [parameter.tolist() for parameter in layout.parameters(rows[0])]
    [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], [6.0, 7.0, 8.0, 9.0, 10.0]]
    """

    def __init__(self, shapes: Sequence[Sequence[int]], filters: Sequence[bool]) -> None:
        self._shapes = [tuple(shape) for shape in shapes]
        self._reordered = list(filters)
        self._lengths = [prod(shape) for shape in self._shapes]
        self._places = [length + -length % ALIGNMENT for length in self._lengths]
        self.d, self.size = sum(self._lengths), sum(self._places)
        self._segments = self._joined_segments()

    def rows(self, count: int, like: Tensor) -> Tensor:
        """Zeros for that many clients, [count, size]. The memory between parameters must stay 0."""
        return like.new_zeros(count, self.size)

    def parameters(self, row: Tensor) -> list[Tensor]:
        """The parameters in a row [size], without a copy."""
        # One split: its gradient is one concatenation, where slices would each make a vector of zeros.
        pieces = torch.split(row, self._places)
        parameters = []
        for piece, shape, length, reordered in zip(pieces, self._shapes, self._lengths, self._reordered, strict=True):
            values = piece[:length] if len(piece) > length else piece
            if reordered:
                outputs, inputs, height, width = shape
                parameters.append(values.view(outputs, height, width, inputs).permute(0, 3, 1, 2))
            else:
                parameters.append(values.view(shape))
        return parameters

    def load(self, rows: Tensor, vectors: Tensor) -> None:
        """Writes a task's vectors into rows [C, size]; the vectors are stacked, [C, d], or shared, [d]."""
        vectors = vectors.expand(len(rows), -1)
        for source, target in self._pairs(vectors, rows):
            target.copy_(source)

    def unload(self, rows: Tensor, vectors: Tensor) -> None:
        """Writes rows [C, size] into stacked vectors [C, d] of a task."""
        for target, source in self._pairs(vectors, rows):
            target.copy_(source)

    def _pairs(self, vectors: Tensor, rows: Tensor) -> list[tuple[Tensor, Tensor]]:
        pairs = []
        for source, target, shape in self._segments:
            outer, inner = vectors[:, source], rows[:, target]
            if shape is not None:
                outputs, inputs, height, width = shape
                outer = outer.view(len(outer), *shape)
                inner = inner.view(len(inner), outputs, height, width, inputs).permute(0, 1, 4, 2, 3)
            pairs.append((outer, inner))
        return pairs

    def _joined_segments(self) -> list[_Segment]:
        segments: list[_Segment] = []
        sources, targets = (list(accumulate(steps, initial=0)) for steps in (self._lengths, self._places))
        for source, target, length, shape, reordered in zip(
            sources, targets, self._lengths, self._shapes, self._reordered, strict=False
        ):
            here = _Segment(
                slice(source, source + length), slice(target, target + length), shape if reordered else None
            )
            last = segments[-1] if segments else None
            if last and not reordered and last.filter_shape is None and last.target.stop == target:
                joined = slice(last.source.start, here.source.stop), slice(last.target.start, here.target.stop)
                segments[-1] = _Segment(*joined, None)
            else:
                segments.append(here)
        return segments
