"""A sequential network of a whole cohort with our own kernels, where they know all of its layers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional as F

from ..tasks import BaseTask, Task
from ..tasks.transforms import Standardize

Steps = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""the sum of the raw gradients over the steps, [C, d], from start, correction, step, clients and batches"""
Evaluation = Callable[[Tensor], dict[str, float]]
Parameters = dict[str, Tensor]
_MOST_CHANNELS = 64
_ALIGNED = 32
"""rows begin at multiples of so many numbers: matrix products of other rows are half as fast"""
_NUMBERS = 1024
"""of a flat vector, what a program takes"""
_PREPARED_SHARE = 0.05
"""of the free memory, for all samples as the network takes them"""


def steps(task: BaseTask) -> Steps | None:
    """Local steps by `task.gradients`, with our kernels; None where they are not asked for or a layer is not known."""
    if not isinstance(task, Task) or not _ours(task):
        return None
    # Whoever trains in another way than a Task does, does so here too.
    if type(task).gradients is not Task.gradients or type(task)._loss is not Task._loss:
        return None
    network = _network(task, task._training)
    if network is None:
        return None
    from . import kernels  # needs triton

    samples = _samples(task)

    def all_steps(start: Tensor, correction: Tensor, step: Tensor, clients: Tensor, batches: Tensor) -> Tensor:
        d = start.shape[1]
        x, total = start.new_empty(len(start), d + -d % _ALIGNED)[:, :d], torch.zeros_like(start)
        x.copy_(start)
        scale = None if task.scale is None else task.scale[clients]
        # Each piece is a leaf of its own: its gradient goes straight into x, not into a vector of all.
        pieces, totals, corrections = (torch.split(v, task._lengths, dim=1) for v in (x, total, correction))
        for batch in batches:
            leaves = [piece.detach().requires_grad_() for piece in pieces]
            inputs, targets = samples(batch)
            # A client's loss depends on its own row of x alone: the gradient of the sum is all of theirs.
            loss = vmap(task.loss, randomness="different")(network(leaves, inputs), targets).sum()
            slopes = torch.autograd.grad(loss, leaves, materialize_grads=True)
            for piece, so_far, shift, g in zip(pieces, totals, corrections, slopes, strict=True):
                length = piece.shape[1]
                kernels.take_step[(-(-length // _NUMBERS), len(x))](
                    piece, so_far, g.contiguous(), shift, step, scale,
                    length, x.stride(0), d, d, scale is not None, _NUMBERS,
                )  # fmt: skip
        return total

    return all_steps


def _samples(task: Task) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """`task.samples`; where all inputs fit as the network takes them, they are prepared once."""
    if task.augment is not None or not isinstance(task.prepare, Standardize):
        return task.samples
    free, _ = torch.cuda.mem_get_info(task.device)
    if task.inputs.numel() * task.dtype.itemsize > _PREPARED_SHARE * free:
        return task.samples
    inputs = task._prepared(task.inputs)
    return lambda batch: (inputs[batch], task.targets[batch])


def evaluation(task: BaseTask) -> Evaluation:
    """`task.evaluate`, with our kernels where they are asked for and know the network."""
    if not isinstance(task, Task) or not _ours(task):
        return task.evaluate
    if type(task).evaluate is not Task.evaluate or type(task)._outputs is not Task._outputs:
        return task.evaluate
    network = _network(task, task._judging)
    if network is None:
        return task.evaluate

    def outputs(x: Tensor, inputs: Tensor) -> Tensor:
        return network(torch.split(x[None], task._lengths, dim=1), inputs[None])[0]

    return partial(task.evaluate, outputs=outputs)


def _ours(task: Task) -> bool:
    """They round factors to ten bits: only where the run allows tf32."""
    allowed = torch.get_float32_matmul_precision() == "high" and task.dtype == torch.float32
    if not allowed or task.device.type != "cuda" or find_spec("triton") is None:
        return False
    # What has no tf32, or is no NVIDIA card, gains nothing by them.
    return torch.version.hip is None and torch.cuda.get_device_capability(task.device) >= (8, 0)


def _network(task: Task, module: nn.Module) -> "_Network | None":
    """The module, of the pieces of stacked parameters [C, ...] and of stacked inputs [C, B, ...]."""
    sample = task._prepared(task.inputs[:1])
    if sample.dtype != torch.float32 or any(_changed(layer) for layer in module.modules()):
        return None
    stages = _stages(module, tuple(sample.shape[1:]))
    # Weights that are shared or not trained are not in x under every name.
    if stages is None or {name for name, _ in module.named_parameters(remove_duplicate=False)} != set(task._names):
        return None

    def network(pieces: Sequence[Tensor], values: Tensor) -> Tensor:
        shapes = zip(task._names, pieces, task._shapes, strict=True)
        parameters = {name: piece.reshape(len(piece), *shape) for name, piece, shape in shapes}
        for stage in stages:
            values = stage(values, parameters)
        return values

    return network


def _changed(layer: nn.Module) -> bool:
    """Whether someone made it do other things than its class does: hooks, pruning, a forward of its own."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks) or "forward" in vars(layer)


def _stages(network: nn.Module, shape: tuple[int, ...]) -> "list[_Stage] | None":
    """What a cohort's samples, [C, B, *shape], go through; None unless some of it is a convolution we know."""
    if type(network) is not nn.Sequential:
        return None
    layers = list(network._modules.items())  # named_children() leaves out one that comes twice
    stages: list[_Stage] = []
    while layers:
        stage: _Stage
        blocks = _Blocks()
        while layers and (found := _block(layers, shape)):
            block, shape, layers = found
            blocks.append(block)
        if blocks:
            stage = blocks
        else:
            (name, layer), *layers = layers
            if type(layer) is nn.Linear and shape == (layer.in_features,):
                stage, shape = _Linear(name, layer.bias is not None), (layer.out_features,)
            elif type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
                stage, shape = _flatten, (torch.Size(shape).numel(),)
            elif type(layer) is nn.ReLU:
                stage = _relu
            elif type(layer) is nn.Dropout:
                stage = _Dropout(_p(layer))
            else:
                return None
        stages.append(stage)
    return stages if any(isinstance(stage, _Blocks) for stage in stages) else None


def _block(layers: "_Layers", shape: tuple[int, ...]) -> "tuple[_Block, tuple[int, ...], _Layers] | None":
    """Convolution, dropout or none, ReLU, pool at the head of the layers, and what is left."""
    (name, conv), *rest = layers
    if type(conv) is not nn.Conv2d or len(shape) != 3:
        return None
    plain = (conv.kernel_size, conv.stride, conv.dilation, conv.groups) == ((3, 3), (1, 1), (1, 1), 1)
    plain = plain and conv.padding == (1, 1) and conv.padding_mode == "zeros" and conv.bias is not None
    fits = (
        conv.in_channels == shape[0]
        and max(conv.in_channels, conv.out_channels) <= _MOST_CHANNELS
        and shape[1] % 2 == 0
        and shape[2] % 2 == 0
    )
    drop = 0.0
    if rest and type(rest[0][1]) is nn.Dropout:
        drop, rest = _p(rest[0][1]), rest[1:]
    if not (plain and fits and drop < 1 and len(rest) >= 2) or type(rest[0][1]) is not nn.ReLU:
        return None
    pool = rest[1][1]
    if (
        type(pool) is not nn.MaxPool2d
        or pool.return_indices
        or (pool.kernel_size, pool.stride, pool.padding, pool.dilation) != (2, 2, 0, 1)
    ):
        return None
    return _Block(name, drop), (conv.out_channels, shape[1] // 2, shape[2] // 2), rest[2:]


def _p(dropout: nn.Dropout) -> float:
    return dropout.p if dropout.training else 0.0


@dataclass
class _Block:
    name: str
    drop: float


class _Blocks(list[_Block]):
    """Convolutions with their pools, one after the other."""

    def __call__(self, values: Tensor, parameters: Parameters) -> Tensor:
        from .conv_pool import Images, channels_first, conv_pool  # needs triton

        images = Images(values.permute(0, 1, 3, 4, 2))
        for block in self:
            weight, bias = parameters[f"{block.name}.weight"], parameters[f"{block.name}.bias"]
            # The kernel draws by itself, from one number of torch's generator.
            seed = torch.randint(2**31, (1,), device=values.device) if block.drop else None
            images = conv_pool(images, weight, bias, seed, block.drop)
        return channels_first(images, bias.shape[1])


@dataclass
class _Linear:
    name: str
    shifted: bool

    def __call__(self, values: Tensor, parameters: Parameters) -> Tensor:
        outputs: Tensor = _Product.apply(values, parameters[f"{self.name}.weight"])  # type: ignore[no-untyped-call]
        return outputs + parameters[f"{self.name}.bias"][:, None] if self.shifted else outputs


class _Product(torch.autograd.Function):
    """values @ weight.mT, whose gradients lie in memory as the factors do: nothing is copied to turn them round."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(values, weight)
        return values @ weight.mT

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor]:
        values, weight = ctx.saved_tensors
        return slope @ weight, slope.mT @ values


@dataclass
class _Dropout:
    p: float

    def __call__(self, values: Tensor, parameters: Parameters) -> Tensor:
        return F.dropout(values, self.p)


def _flatten(values: Tensor, parameters: Parameters) -> Tensor:
    return values.flatten(2)


def _relu(values: Tensor, parameters: Parameters) -> Tensor:
    return values.relu()


_Layers = list[tuple[str, nn.Module]]
_Stage = Callable[[Tensor, Parameters], Tensor]
_Network = Callable[[Sequence[Tensor], Tensor], Tensor]
