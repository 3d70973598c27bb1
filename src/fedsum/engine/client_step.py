"""One local step of one client, in place, over rows of a `FlatLayout`: forward, backward and update."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..tasks import BaseTask, client_loss_of
from .flat_layout import FlatLayout
from .local_step import local_step
from .regularised import Regularised

Function = Callable[..., Tensor]
COMPILER: dict[str, Any] = {}
"""further arguments of torch.compile, for benchmarks"""
CHANNELS_LAST = True
"""whether filters are kept in channels_last order on CUDA; benchmarks compare both"""


@dataclass(frozen=True, eq=False)
class ClientRow:
    """The memory of one client's step. Its tensors never move, so that a CUDA graph can refer to them."""

    model: Tensor
    """the parameters x, [size], which requires a gradient"""
    x: Tensor
    """the same memory, for the update"""
    total: Tensor
    """the sum of gradients, [size]"""
    client: Tensor
    """the client's id, []"""
    start: Tensor | None
    """with pull and decay: the model at the start of the round, [size]"""
    correction: Tensor | None
    """[size]; None for none"""
    scalars: tuple[Tensor, ...]
    """step, and with `start` also pull and decay, []"""


class ClientStep:
    """The step of every client of a task: one function, which is compiled once for all of them."""

    def __init__(self, task: BaseTask, like: Tensor) -> None:
        self._extra = task if isinstance(task, Regularised) else None
        self._task = task if self._extra is None else self._extra.task
        self._loss = client_loss_of(self._task)
        self._cuda = like.device.type == "cuda"
        self.layout = self._layout(like)
        self._value: Function = self._client_loss
        self._stacked: Function = self._stacked_gradient
        self._update: Callable[..., None] = self._updated
        self.compiled = False

    def _layout(self, like: Tensor) -> FlatLayout:
        if self._loss is None:
            return FlatLayout([like.shape[-1:]], [False])
        reordered = reorders_filters(like.device)
        return FlatLayout(self._loss.shapes, [reordered and is_filter for is_filter in self._loss.filters])

    def compile(self) -> None:
        """Compiles the parts of the step. They are traced at the next call."""
        if not self.compiled:
            with _without_warnings():
                self._value = torch.compile(self._client_loss, dynamic=False, **COMPILER)
                self._stacked = torch.compile(self._stacked_gradient, dynamic=False, **COMPILER)
                self._update = torch.compile(self._updated, dynamic=False, **COMPILER)
            self.compiled = True

    def interpret(self) -> None:
        """Undoes `compile`."""
        self._value, self._stacked, self._update = self._client_loss, self._stacked_gradient, self._updated
        self.compiled = False

    def __call__(self, row: ClientRow, batch: Tensor, alive: Tensor) -> None:
        """One step of a client, inside `running`. With `alive` 0, all its steps are taken, and its sum stays."""
        if self._loss is None:
            g = self._stacked(row.x, row.client, batch)
        else:
            with torch.enable_grad():
                (g,) = torch.autograd.grad(self._value(row.model, row.client, batch), row.model)
        self._update(row.x, row.total, g, alive, row.start, row.correction, *row.scalars)

    @contextmanager
    def running(self) -> Iterator[None]:
        """The context of all calls: without the compiler's and cuDNN's warnings, which users cannot act on."""
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            if self.compiled:
                # The limits guard against endless recompilation; here code is compiled once per batch shape.
                limits = torch._dynamo.config.patch(recompile_limit=10**6, accumulated_recompile_limit=10**6)
                stack.enter_context(limits)
            if self._cuda or self.compiled:
                stack.enter_context(_without_warnings())
            yield

    def _client_loss(self, model: Tensor, client: Tensor, batch: Tensor) -> Tensor:
        assert self._loss is not None
        # One conversion of the whole row to bf16, where torch.autocast would have one per layer.
        row = model.to(self._loss.compute_dtype)
        value = self._loss.loss(self.layout.parameters(row), batch)
        return value if self._loss.scale is None else value * self._loss.scale[client]

    def _stacked_gradient(self, x: Tensor, client: Tensor, batch: Tensor) -> Tensor:
        """For a task with gradients of its own. It takes clients as a tensor, which may change between replays."""
        (model,) = self.layout.parameters(x)
        g = self._task.gradients(model[None], client[None], batch[None])[0]
        return torch.nn.functional.pad(g, (0, len(x) - len(g)))

    def _updated(
        self,
        x: Tensor,
        total: Tensor,
        g: Tensor,
        alive: Tensor,
        start: Tensor | None,
        correction: Tensor | None,
        *scalars: Tensor,
    ) -> None:
        if self._extra is not None:
            g = self._extra.regularise(g, x)
        no_pull = x if start is None else start  # is not read without pull and decay
        moved, added = local_step(x, total, g, no_pull, 0.0 if correction is None else correction, *scalars)
        x.copy_(moved)
        total.copy_(torch.where(alive != 0, added, total))


def reorders_filters(device: torch.device) -> bool:
    """Whether filters are in channels_last order, in which tensor cores read them. Exact float32 does not use them."""
    return CHANNELS_LAST and device.type == "cuda" and torch.get_float32_matmul_precision() != "highest"


@contextmanager
def _without_warnings() -> Iterator[None]:
    logger = logging.getLogger("torch._dynamo")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
