"""One local step of one client, in place, over rows of a `FlatLayout`: forward, backward and update."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..tasks import BaseTask, client_loss_of
from .compilation import compiled, compiling
from .flat_layout import FlatLayout
from .local_step import local_step
from .own_gradients import gradients_of
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
            self._value = compiled(self._client_loss, **COMPILER)
            self._stacked = compiled(self._stacked_gradient, **COMPILER)
            self._update = compiled(self._updated, **COMPILER)
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
                # The compiler makes a backward pass that does not call the module.
                g = self._gradient(row, batch) if self.compiled else self._interpreted_gradient(row, batch)
        self._update(row.x, row.total, g, alive, row.start, row.correction, *row.scalars)

    @contextmanager
    def running(self) -> Iterator[None]:
        """The context of all calls: without the compiler's and cuDNN's warnings, which users cannot act on."""
        with torch.no_grad(), compiling() if self._cuda or self.compiled else nullcontext():
            yield

    def _gradient(self, row: ClientRow, batch: Tensor) -> Tensor:
        (g,) = torch.autograd.grad(self._value(row.model, row.client, batch), row.model)
        return g

    def _interpreted_gradient(self, row: ClientRow, batch: Tensor) -> Tensor:
        assert self._loss is not None
        parameters = self.layout.parameters(row.model.to(self._loss.compute_dtype))
        return self._loss.within(parameters, lambda: self._gradient(row, batch))

    def _client_loss(self, model: Tensor, client: Tensor, batch: Tensor) -> Tensor:
        assert self._loss is not None
        # One conversion of the whole row to bf16, where torch.autocast would have one per layer.
        row = model.to(self._loss.compute_dtype)
        value = self._loss.loss(self.layout.parameters(row), batch)
        # Not `scale[client]`, which waits for the device if it is not compiled.
        return value if self._loss.scale is None else value * torch.take(self._loss.scale, client)

    def _stacked_gradient(self, x: Tensor, client: Tensor, batch: Tensor) -> Tensor:
        """For a task with gradients of its own. It takes clients as a tensor, which may change between replays."""
        (model,) = self.layout.parameters(x)
        g = gradients_of(self._task)(model[None], client[None], batch[None])[0]
        return torch.nn.functional.pad(g, (0, len(x) - len(g)))

    def _updated(
        self,
        x: Tensor,
        total: Tensor,
        g: Tensor,
        alive: Tensor,
        start: Tensor | None,
        correction: Tensor | None,
        step: Tensor,
        pull: Tensor | None = None,
        decay: Tensor | None = None,
    ) -> None:
        if self._extra is not None:
            g = self._extra.regularise(g, x)
        no_pull = x if start is None else start  # is not read without pull and decay
        moved, added = local_step(x, total, g, no_pull, 0.0 if correction is None else correction, step, pull, decay)
        x.copy_(moved)
        total.copy_(torch.where(alive != 0, added, total))


def reorders_filters(device: torch.device) -> bool:
    """Whether filters are in channels_last order, in which tensor cores read them. Exact float32 does not use them."""
    return CHANNELS_LAST and device.type == "cuda" and torch.get_float32_matmul_precision() != "highest"
