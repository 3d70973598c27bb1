"""The memory that the steps of a chunk of clients read and write. CUDA graphs refer to it, so it never moves."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..algorithms import LocalPlan
from ..participation import Ids
from .client_step import ClientRow
from .flat_layout import FlatLayout
from .local_step import is_pulled
from .stacked import rows
from .transfer import on_device


class CohortVectors:
    """Vectors in the layout of the steps for up to `capacity` clients, and the numbers of a plan."""

    def __init__(self, layout: FlatLayout, capacity: int, like: Tensor) -> None:
        self._layout, self._like, self.capacity = layout, like, capacity
        self.x, self.total = (layout.rows(capacity, like) for _ in range(2))
        self._start: Tensor | None = None
        self._correction: Tensor | None = None
        self.numbers = [like.new_zeros(()) for _ in range(3)]
        """step, pull and decay"""
        self.clients = _aligned(torch.int64, (capacity,), (), like.device)

    def start(self) -> Tensor:
        """Made at the first call: only algorithms with a pull need it."""
        if self._start is None:
            self._start = self._layout.rows(self.capacity, self._like)
        return self._start

    def correction(self) -> Tensor:
        """Made at the first call: not all algorithms correct gradients."""
        if self._correction is None:
            self._correction = self._layout.rows(self.capacity, self._like)
        return self._correction


class CohortMemory:
    """The memory of a chunk of clients, for batches [k, C, ...] of this shape and plans of this kind."""

    def __init__(self, layout: FlatLayout, vectors: CohortVectors, batches: Tensor, plan: LocalPlan) -> None:
        self._layout, self._vectors, self.size = layout, vectors, batches.shape[1]
        device = vectors.x.device
        self.total = vectors.total[: self.size]
        self.batches = _aligned(batches.dtype, tuple(batches.shape[:2]), tuple(batches.shape[2:]), device)
        self.alive = _aligned(torch.int64, tuple(batches.shape[:2]), (), device)
        self._start = vectors.start() if is_pulled(plan) else None
        self._correction = None if plan.correction is None else vectors.correction()
        self.rows = [self._row(place) for place in range(self.size)]
        self.replay: Callable[[], None] | None = None
        """takes the steps; set when they are captured"""

    def load(self, plan: LocalPlan, chunk: slice, clients: Ids) -> None:
        """Writes the chunk's part of a plan."""
        vectors, size = self._vectors, self.size
        self._layout.load(vectors.x[:size], rows(plan.start, chunk))
        if self._start is not None:
            self._start[:size] = vectors.x[:size]
        if self._correction is not None and plan.correction is not None:
            self._layout.load(self._correction[:size], rows(plan.correction, chunk))
        for number, value in zip(vectors.numbers, (plan.step, plan.pull, plan.decay), strict=True):
            number.fill_(value)
        vectors.clients[:size].copy_(on_device(torch.from_numpy(clients), vectors.x.device))
        self.total.zero_()

    def load_steps(self, batches: Tensor, alive: Tensor) -> None:
        """Writes the batches of the next steps, and which clients still take them."""
        self.batches.copy_(on_device(batches, self.batches.device))
        self.alive.copy_(on_device(alive.long(), self.alive.device))

    def _row(self, place: int) -> ClientRow:
        vectors = self._vectors
        step, pull, decay = vectors.numbers
        start, correction = (
            None if matrix is None else _alias(matrix[place]) for matrix in (self._start, self._correction)
        )
        return ClientRow(
            model=_alias(vectors.x[place]).requires_grad_(),
            x=_alias(vectors.x[place]),
            total=_alias(vectors.total[place]),
            client=vectors.clients[place],
            start=start,
            correction=correction,
            scalars=(step,) if start is None else (step, pull, decay),
        )


def _alias(values: Tensor) -> Tensor:
    """The same memory as a tensor of its own: autograd and the compiler handle a view together with its base."""
    alias = torch.empty(0, dtype=values.dtype, device=values.device)
    return alias.set_(values.untyped_storage(), values.storage_offset(), values.shape, values.stride())


def _aligned(dtype: torch.dtype, outer: tuple[int, ...], inner: tuple[int, ...], device: torch.device) -> Tensor:
    """Zeros [*outer, *inner], each inner tensor at a multiple of 16 bytes: compiled code copies unaligned inputs."""
    numbers = torch.Size(inner).numel()
    per_block = 16 // dtype.itemsize
    blocks = torch.zeros(*outer, numbers + -numbers % per_block, dtype=dtype, device=device)
    return blocks[..., :numbers].view(*outer, *inner) if inner else blocks[..., 0]
