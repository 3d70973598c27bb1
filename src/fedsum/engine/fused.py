"""A sequential network of a whole cohort with our own kernels, where they know all of its layers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn import functional as F

from ..tasks import BaseTask, Task

Gradients = Callable[[Tensor, Tensor, Tensor], Tensor]
Evaluation = Callable[[Tensor], dict[str, float]]
Parameters = dict[str, Tensor]
_LARGEST = 64


def gradients(task: BaseTask) -> Gradients | None:
    """What `task.gradients` does, with our kernels; None where they are not asked for or a layer is not known."""
    if not isinstance(task, Task) or not _ours(task):
        return None
    # Whoever trains in another way than a Task does, does so here too.
    if type(task).gradients is not Task.gradients or type(task)._loss is not Task._loss:
        return None
    network = _network(task, task._training)
    if network is None:
        return None

    def each(x: Tensor, clients: Tensor, batch: Tensor) -> Tensor:
        inputs, targets = task.samples(batch)
        # A client's loss depends on its own row of x alone: the gradient of the sum is all of theirs.
        g: Tensor = grad(lambda x: vmap(task.loss, randomness="different")(network(x, inputs), targets).sum())(x)
        return g if task.scale is None else g * task.scale[clients][:, None]

    return each


def evaluation(task: BaseTask) -> Evaluation:
    """`task.evaluate`, with our kernels where they are asked for and know the network."""
    if not isinstance(task, Task) or not _ours(task):
        return task.evaluate
    if type(task).evaluate is not Task.evaluate or type(task)._outputs is not Task._outputs:
        return task.evaluate
    network = _network(task, task._judging)
    if network is None:
        return task.evaluate
    return partial(task.evaluate, outputs=lambda x, inputs: network(x[None], inputs[None])[0])


def _ours(task: Task) -> bool:
    """They round factors to ten bits: only where the run allows tf32."""
    allowed = torch.get_float32_matmul_precision() == "high" and task.dtype == torch.float32
    if not allowed or task.device.type != "cuda" or find_spec("triton") is None:
        return False
    # What has no tf32, or is no NVIDIA card, gains nothing by them.
    return torch.version.hip is None and torch.cuda.get_device_capability(task.device) >= (8, 0)


def _network(task: Task, module: nn.Module) -> Callable[[Tensor, Tensor], Tensor] | None:
    """The module of stacked parameters [C, d] on stacked inputs [C, B, ...]."""
    sample = task._prepared(task.inputs[:1])
    if sample.dtype != torch.float32 or any(_changed(layer) for layer in module.modules()):
        return None
    stages = _stages(module, tuple(sample.shape[1:]))
    # Weights that are shared or not trained are not in x under every name.
    if stages is None or {name for name, _ in module.named_parameters(remove_duplicate=False)} != set(task._names):
        return None

    def network(x: Tensor, values: Tensor) -> Tensor:
        pieces = zip(task._names, torch.split(x, task._lengths, dim=1), task._shapes, strict=True)
        parameters = {name: piece.reshape(len(x), *shape) for name, piece, shape in pieces}
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
        block = _block(layers, shape, first=not (stages and isinstance(stages[-1], _ConvPool)))
        if block:
            stage, shape, layers = block
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
    return stages if any(isinstance(stage, _ConvPool) for stage in stages) else None


def _block(
    layers: "_Layers", shape: tuple[int, ...], first: bool = False
) -> "tuple[_ConvPool, tuple[int, ...], _Layers] | None":
    """Convolution, dropout or none, ReLU, pool at the head of the layers, and what is left."""
    (name, conv), *rest = layers
    if type(conv) is not nn.Conv2d or len(shape) != 3:
        return None
    plain = (conv.kernel_size, conv.stride, conv.dilation, conv.groups) == ((3, 3), (1, 1), (1, 1), 1)
    plain = plain and conv.padding == (1, 1) and conv.padding_mode == "zeros" and conv.bias is not None
    fits = (
        conv.in_channels == shape[0]
        and max(conv.in_channels, conv.out_channels) <= _LARGEST
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
    shape, rest = (conv.out_channels, shape[1] // 2, shape[2] // 2), rest[2:]
    last = not rest or _block(rest, shape) is None
    return _ConvPool(name, drop, first, last), shape, rest


def _p(dropout: nn.Dropout) -> float:
    return dropout.p if dropout.training else 0.0


@dataclass
class _ConvPool:
    name: str
    drop: float
    first: bool
    """no other of its kind is before it"""
    last: bool
    """none follows"""

    def __call__(self, values: Tensor, parameters: Parameters) -> Tensor:
        from .conv_pool import conv_pool, rounded  # needs triton

        weight, bias = parameters[f"{self.name}.weight"], parameters[f"{self.name}.bias"]
        (outs, ins), have = weight.shape[1:3], values.shape[2]
        # From one to the next the channels are a multiple of 16, the rest zero: then memory is read in wide words.
        more = -outs % 16
        weight, bias = F.pad(weight, (0, 0, 0, 0, 0, have - ins, 0, more)), F.pad(bias, (0, more))
        # The kernel draws by itself, from one number of torch's generator.
        seed = torch.randint(2**31, (1,), device=values.device) if self.drop else values.new_zeros(1, dtype=torch.int64)
        images = (rounded(values) if self.first else values).permute(0, 1, 3, 4, 2)
        pooled = conv_pool(images, weight, bias, seed, self.drop).permute(0, 1, 4, 2, 3)
        return pooled[:, :, :outs] if self.last else pooled


@dataclass
class _Linear:
    name: str
    shifted: bool

    def __call__(self, values: Tensor, parameters: Parameters) -> Tensor:
        weight = parameters[f"{self.name}.weight"].mT
        if not self.shifted:
            return values @ weight
        return torch.baddbmm(parameters[f"{self.name}.bias"][:, None], values, weight)


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
