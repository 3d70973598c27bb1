"""The layers that our kernels support, for a whole cohort, each with a forward and a backward pass.

Backward passes are written out instead of left to autograd. A step then launches about 40 kernels instead of 90, and
most kernels are so small that their number determines the time.
"""

# mypy: allow-untyped-calls
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import triton
from torch import Tensor

from . import conv_pool
from . import elementwise_kernels as kernels

Parameters = dict[str, Tensor]
"""by name, [C, ...]: views of the stacked x, or of a stacked gradient"""
_BLOCK = 1024
"""elements per program of a kernel that works element by element"""
_ROWS, _COLUMNS = 32, 32
_ROWS_PER_SHARE = 512
_TILE = 2048
"""elements per tile of a kernel that reduces rows"""


class Layer(Protocol):
    @property
    def names(self) -> list[str]:
        """Names of the layer's parameters."""
        ...

    def forward(self, values: Any, x: Parameters) -> tuple[Tensor, Any]:
        """Stacked values [C, B, ...] after the layer, and the values it saves for `backward`."""
        ...

    def backward(self, grad: Tensor, saved: Any, x: Parameters, g: Parameters, further: bool) -> Tensor:
        """Backpropagates the gradient of the layer's output: writes the gradients of its parameters into g.

        Returns the gradient of its input if `further`; otherwise the result is not used.
        """
        ...


@dataclass(frozen=True)
class Convolution:
    """A convolution with dropout, ReLU and max pool."""

    name: str
    drop: float
    """probability of dropout"""


@dataclass(frozen=True)
class Convolutions:
    """Successive convolutions: images return to torch's layout only after the last one."""

    blocks: tuple[Convolution, ...]

    @property
    def names(self) -> list[str]:
        return [f"{block.name}.{kind}" for block in self.blocks for kind in ("weight", "bias")]

    def forward(
        self, values: Tensor | conv_pool.PaddedImages, x: Parameters
    ) -> tuple[Tensor, list[conv_pool.SavedForBackward]]:
        images: Any = conv_pool.PaddedImages.of_batches(values) if isinstance(values, Tensor) else values
        all_saved = []
        for i, block in enumerate(self.blocks, 1):
            weight, bias = x[f"{block.name}.weight"], x[f"{block.name}.bias"]
            seed, last = draw_seed(weight, block.drop), i == len(self.blocks)
            images, saved = conv_pool.forward(images, weight, bias, seed, block.drop, last=last)
            all_saved.append(saved)
        return images, all_saved

    def backward(
        self, grad: Tensor, saved: list[conv_pool.SavedForBackward], x: Parameters, g: Parameters, further: bool
    ) -> Tensor:
        back: Any = grad
        for i, block in reversed(list(enumerate(self.blocks))):
            weight, bias = g[f"{block.name}.weight"], g[f"{block.name}.bias"]
            back = conv_pool.backward(saved[i], back, weight, bias, to_images=further or i > 0)
        return grad if back is None else conv_pool.to_torch_layout(back, weight.shape[2])


@dataclass(frozen=True)
class Flatten:
    @property
    def names(self) -> list[str]:
        return []

    def forward(self, values: Tensor, x: Parameters) -> tuple[Tensor, torch.Size]:
        return values.flatten(2), values.shape

    def backward(self, grad: Tensor, saved: torch.Size, x: Parameters, g: Parameters, further: bool) -> Tensor:
        return grad.reshape(saved)


@dataclass(frozen=True)
class Product:
    """The product with each client's own matrix."""

    weight: str

    @property
    def names(self) -> list[str]:
        return [self.weight]

    def forward(self, values: Tensor, x: Parameters) -> tuple[Tensor, Tensor]:
        return values @ x[self.weight].mT, values

    def backward(self, grad: Tensor, saved: Tensor, x: Parameters, g: Parameters, further: bool) -> Tensor:
        torch.bmm(grad.mT, saved, out=g[self.weight])
        return grad @ x[self.weight] if further else grad


@dataclass(frozen=True)
class Activation:
    """Optional bias, ReLU and dropout. Dropout before ReLU gives the same values."""

    bias: str | None
    relu: bool
    drop: float
    """probability of dropout"""

    @property
    def names(self) -> list[str]:
        return [] if self.bias is None else [self.bias]

    def forward(self, values: Tensor, x: Parameters) -> tuple[Tensor, tuple[Tensor, Tensor | None]]:
        values = values.contiguous()
        out, seed = torch.empty_like(values), draw_seed(values, self.drop)
        bias = None if self.bias is None else x[self.bias]
        elements = values[0].numel()
        kernels.activate[(triton.cdiv(elements, _BLOCK), len(values))](
            values, bias, seed, out,
            0 if bias is None else bias.stride(0), elements, values.shape[-1], 1 - self.drop,
            bias is not None, self.relu, self.drop > 0, _BLOCK,
        )  # fmt: skip
        return out, (out, seed)

    def backward(
        self, grad: Tensor, saved: tuple[Tensor, Tensor | None], x: Parameters, g: Parameters, further: bool
    ) -> Tensor:
        grad, (out, seed) = grad.contiguous(), saved
        grad_input, bias = torch.empty_like(grad), None if self.bias is None else g[self.bias]
        width = grad.shape[-1]
        rows = grad[0].numel() // width
        shares = triton.cdiv(rows, _ROWS_PER_SHARE) if bias is None else 1
        kernels.deactivate[(triton.cdiv(width, _COLUMNS), len(grad), shares)](
            grad, out, seed, grad_input, bias,
            0 if bias is None else bias.stride(0), rows, width, 1 - self.drop,
            bias is not None, self.relu, self.drop > 0, _ROWS, triton.cdiv(rows, _ROWS * shares), _COLUMNS,
        )  # fmt: skip
        return grad_input


def cross_entropy_gradient(outputs: Tensor, targets: Tensor) -> Tensor:
    """The gradient of each client's mean cross entropy at outputs [C, B, classes], for targets [C, B]."""
    outputs = outputs.contiguous()
    grad, classes = torch.empty_like(outputs), outputs.shape[-1]
    block = triton.next_power_of_2(classes)
    rows = max(1, _TILE // block)
    kernels.cross_entropy[(triton.cdiv(targets.numel(), rows),)](
        outputs, targets.contiguous(), grad, targets.numel(), classes, 1 / targets.shape[1], rows, block
    )
    return grad


def take_step(
    x: Tensor,
    total: Tensor,
    g: Tensor,
    start: Tensor,
    correction: Tensor,
    step: Tensor,
    scale: Tensor | None,
    pull: Tensor | None = None,
    decay: Tensor | None = None,
) -> None:
    """`local_step` in place, with g times each client's scale; vectors are [C, d].

    Without `pull` and `decay` (both or none), `start` is not read.
    """
    d, pulled = x.shape[1], pull is not None
    kernels.take_step[(triton.cdiv(d, _BLOCK), len(x))](
        x, total, g, start if pulled else None, correction, step, scale, pull, decay,
        d, x.stride(0), total.stride(0), g.stride(0), start.stride(0) if pulled else 0, correction.stride(0),
        scale is not None, pulled, _BLOCK,
    )  # fmt: skip


def forward(
    layers: Sequence[Layer], values: Tensor | conv_pool.PaddedImages, x: Parameters
) -> tuple[Tensor, list[Any]]:
    """The output of the last layer, and the values that each layer saves for `backward`."""
    outputs: Any = values
    all_saved = []
    for layer in layers:
        outputs, saved = layer.forward(outputs, x)
        all_saved.append(saved)
    return outputs, all_saved


def backward(
    layers: Sequence[Layer], grad: Tensor, saved: list[Any], x: Parameters, g: Parameters, further: bool = False
) -> Tensor:
    """Backpropagates the gradient of the last layer's output: writes the gradients of all parameters into g.

    Returns the gradient of the first layer's input if `further`; otherwise the result is not used.
    """
    for i, layer in reversed(list(enumerate(layers))):
        grad = layer.backward(grad, saved[i], x, g, further=further or i > 0)
    return grad


def draw_seed(values: Tensor, drop: float) -> Tensor | None:
    """The seed of a kernel's own random numbers: one number from torch's generator."""
    return torch.randint(2**31, (1,), device=values.device) if drop else None
