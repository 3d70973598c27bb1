"""The layers that our kernels know, of a whole cohort: each goes forward, and back from what it kept.

Written out rather than left to autograd: a step is then some forty kernels instead of ninety, and most of these are so
small that their number is what they cost.
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
"""by name, [C, ...]: pieces of the stacked x, or of a gradient"""
_NUMBERS = 1024
"""what a program takes where it goes through numbers one by one"""
_ROWS, _COLUMNS = 32, 32
_TILE = 2048
"""numbers of a tile whose rows are reduced"""


class Layer(Protocol):
    @property
    def names(self) -> list[str]:
        """Of its parameters."""
        ...

    def forward(self, values: Any, x: Parameters) -> tuple[Tensor, Any]:
        """Stacked values [C, B, ...] after the layer, and what `backward` needs of it."""
        ...

    def backward(self, slope: Tensor, kept: Any, x: Parameters, g: Parameters, further: bool) -> Tensor:
        """Writes the gradients of its parameters into g; gives the slope of its input, if it goes `further` back."""
        ...


@dataclass(frozen=True)
class Convolution:
    """With dropout or none, ReLU and max pool."""

    name: str
    drop: float


@dataclass(frozen=True)
class Convolutions:
    """One after the other, so that images need not come back to torch's order in between."""

    blocks: tuple[Convolution, ...]

    @property
    def names(self) -> list[str]:
        return [f"{block.name}.{kind}" for block in self.blocks for kind in ("weight", "bias")]

    def forward(self, values: Tensor | conv_pool.Framed, x: Parameters) -> tuple[Tensor, list[conv_pool.Kept]]:
        images: Any = conv_pool.Framed.of(values) if isinstance(values, Tensor) else values
        all_kept = []
        for i, block in enumerate(self.blocks, 1):
            weight, bias = x[f"{block.name}.weight"], x[f"{block.name}.bias"]
            seed, last = _seed(weight, block.drop), i == len(self.blocks)
            images, kept = conv_pool.forward(images, weight, bias, seed, block.drop, last=last)
            all_kept.append(kept)
        return images, all_kept

    def backward(
        self, slope: Tensor, kept: list[conv_pool.Kept], x: Parameters, g: Parameters, further: bool
    ) -> Tensor:
        back: Any = slope
        for i, block in reversed(list(enumerate(self.blocks))):
            weight, bias = g[f"{block.name}.weight"], g[f"{block.name}.bias"]
            back = conv_pool.backward(kept[i], back, weight, bias, to_images=further or i > 0)
        return slope if back is None else conv_pool.as_torch_has_them(back, weight.shape[2])


@dataclass(frozen=True)
class Flatten:
    @property
    def names(self) -> list[str]:
        return []

    def forward(self, values: Tensor, x: Parameters) -> tuple[Tensor, torch.Size]:
        return values.flatten(2), values.shape

    def backward(self, slope: Tensor, kept: torch.Size, x: Parameters, g: Parameters, further: bool) -> Tensor:
        return slope.reshape(kept)


@dataclass(frozen=True)
class Product:
    """By a matrix of each client's own."""

    weight: str

    @property
    def names(self) -> list[str]:
        return [self.weight]

    def forward(self, values: Tensor, x: Parameters) -> tuple[Tensor, Tensor]:
        return values @ x[self.weight].mT, values

    def backward(self, slope: Tensor, kept: Tensor, x: Parameters, g: Parameters, further: bool) -> Tensor:
        torch.bmm(slope.mT, kept, out=g[self.weight])
        return slope @ x[self.weight] if further else slope


@dataclass(frozen=True)
class Activation:
    """A shift or none, ReLU or none, dropout or none; in this order, or ReLU last, which is the same."""

    bias: str | None
    relu: bool
    drop: float

    @property
    def names(self) -> list[str]:
        return [] if self.bias is None else [self.bias]

    def forward(self, values: Tensor, x: Parameters) -> tuple[Tensor, tuple[Tensor, Tensor | None]]:
        values = values.contiguous()
        out, seed = torch.empty_like(values), _seed(values, self.drop)
        bias = None if self.bias is None else x[self.bias]
        numbers = values[0].numel()
        kernels.activate[(triton.cdiv(numbers, _NUMBERS), len(values))](
            values, bias, seed, out,
            0 if bias is None else bias.stride(0), numbers, values.shape[-1], 1 - self.drop,
            bias is not None, self.relu, self.drop > 0, _NUMBERS,
        )  # fmt: skip
        return out, (out, seed)

    def backward(
        self, slope: Tensor, kept: tuple[Tensor, Tensor | None], x: Parameters, g: Parameters, further: bool
    ) -> Tensor:
        slope, (out, seed) = slope.contiguous(), kept
        before, bias = torch.empty_like(slope), None if self.bias is None else g[self.bias]
        width = slope.shape[-1]
        rows = slope[0].numel() // width
        kernels.deactivate[(triton.cdiv(width, _COLUMNS), len(slope))](
            slope, out, seed, before, bias,
            0 if bias is None else bias.stride(0), rows, width, 1 - self.drop,
            bias is not None, self.relu, self.drop > 0, _ROWS, triton.cdiv(rows, _ROWS), _COLUMNS,
        )  # fmt: skip
        return before


def cross_entropy_slope(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of each client's mean cross entropy, from outputs [C, B, classes] and targets [C, B]."""
    outputs = outputs.contiguous()
    slope, classes = torch.empty_like(outputs), outputs.shape[-1]
    block = triton.next_power_of_2(classes)
    rows = max(1, _TILE // block)
    kernels.cross_entropy[(triton.cdiv(targets.numel(), rows),)](
        outputs, targets.contiguous(), slope, targets.numel(), classes, 1 / targets.shape[1], rows, block
    )
    return slope


def take_step(x: Tensor, total: Tensor, g: Tensor, correction: Tensor, step: Tensor, scale: Tensor | None) -> None:
    """x -= step (g + correction) and total += g, with g times each client's scale; all [C, d]."""
    d = x.shape[1]
    kernels.take_step[(triton.cdiv(d, _NUMBERS), len(x))](
        x, total, g, correction, step, scale,
        d, x.stride(0), total.stride(0), g.stride(0), correction.stride(0), scale is not None, _NUMBERS,
    )  # fmt: skip


def values_after(layers: Sequence[Layer], values: Tensor | conv_pool.Framed, x: Parameters) -> tuple[Tensor, list[Any]]:
    """What comes out of all layers, and what each of them kept."""
    after: Any = values
    all_kept = []
    for layer in layers:
        after, kept = layer.forward(after, x)
        all_kept.append(kept)
    return after, all_kept


def write_gradients(layers: Sequence[Layer], slope: Tensor, kept: list[Any], x: Parameters, g: Parameters) -> None:
    for i, layer in reversed(list(enumerate(layers))):
        slope = layer.backward(slope, kept[i], x, g, further=i > 0)


def _seed(values: Tensor, drop: float) -> Tensor | None:
    """For a kernel that draws by itself: one number of torch's generator."""
    return torch.randint(2**31, (1,), device=values.device) if drop else None
