"""A sequential network of a whole cohort with our own kernels, where they know all of its layers."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from types import NoneType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...tasks import BaseTask, Task
from ...tasks.transforms import Augment, Standardize

if TYPE_CHECKING:
    from .conv_pool import Framed
    from .layers import Convolution, Layer, Parameters

Steps = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""the sum of the raw gradients over the steps, [C, d], from start, correction, step, clients and batches"""
Evaluation = Callable[[Tensor], dict[str, float]]
_MOST_CHANNELS = 64
_ALIGNED = 32
"""rows begin at multiples of so many numbers: matrix products of other rows are half as fast"""
_PREPARED_SHARE = 0.05
"""of the free memory, for all samples of a set as the network takes them"""
_PREPARED = "_prepared_sets"
"""where a task keeps them, for whatever else is done with it"""
_ACTIVATIONS = 4
"""what our kernels keep of a network's values at a time, in sizes of its input"""


def steps(task: BaseTask) -> Steps | None:
    """Local steps by `task.gradients`, with our kernels; None where they are not asked for or something is not known.

    What is captured in a graph must not copy from the host, as a loss or a preparation of the user's may.
    """
    if not isinstance(task, Task) or not _ours(task) or not _trains_as_a_task(task):
        return None
    layers, shape = _layers(task, task._training)
    # A label that is no class is torch's to refuse.
    if not layers or len(shape) != 1 or int(task.targets.max()) >= shape[0]:
        return None
    from .layers import cross_entropy_slope, take_step, values_after, write_gradients

    samples = _samples(task, layers)

    @torch.no_grad()
    def all_steps(start: Tensor, correction: Tensor, step: Tensor, clients: Tensor, batches: Tensor) -> Tensor:
        d = start.shape[1]
        x, g = (start.new_empty(len(start), d + -d % _ALIGNED)[:, :d] for _ in range(2))
        x.copy_(start)
        total, scale = torch.zeros_like(start), None if task.scale is None else task.scale[clients]
        at, to = _parameters(task, x), _parameters(task, g)
        for batch in batches:
            inputs, targets = samples(batch)
            outputs, kept = values_after(layers, inputs, at)
            write_gradients(layers, cross_entropy_slope(outputs, targets), kept, at, to)
            take_step(x, total, g, correction, step, scale)
        return total

    return all_steps


def _parameters(task: Task, vectors: Tensor) -> "Parameters":
    """By name, of stacked vectors [C, d]."""
    pieces = torch.split(vectors, task._lengths, dim=1)
    shapes = zip(task._names, pieces, task._shapes, strict=True)
    return {name: piece.view(len(piece), *shape) for name, piece, shape in shapes}


def _trains_as_a_task(task: Task) -> bool:
    """Whoever samples, prepares, or has a loss in a way of their own, keeps it."""
    own = ("gradients", "_loss", "samples", "_prepared")
    if any(getattr(type(task), name) is not getattr(Task, name) for name in own):
        return False
    if type(task.prepare) not in (NoneType, Standardize) or type(task.augment) not in (NoneType, Augment):
        return False
    loss = task.loss
    if isinstance(loss, nn.CrossEntropyLoss):
        plain = (loss.weight, loss.label_smoothing, loss.reduction) == (None, 0.0, "mean")
        plain = plain and type(loss) is nn.CrossEntropyLoss and not _changed(loss)
    else:
        plain = loss is F.cross_entropy
    # A negative label would be left out of the mean.
    labels = task.targets.dim() == 1 and task.targets.dtype == torch.int64
    return plain and labels and int(task.targets.min()) >= 0


def _samples(task: Task, layers: "list[Layer]") -> "Callable[[Tensor], tuple[Tensor | Framed, Tensor]]":
    """`task.samples`; where convolutions come first and all inputs fit, these are made what they read once."""
    images = None if task.augment is not None else _framed(task, task.inputs, layers)
    if images is None:
        return task.samples
    return lambda batch: (images.of_clients(batch), task.targets[batch])


def _framed(task: Task, inputs: Tensor, layers: "list[Layer]") -> "Framed | None":
    """All inputs of a set as convolutions read them, made once; None if no convolution is first, or they do not fit."""
    from .conv_pool import Framed
    from .layers import Convolutions

    # What a preparation of the user's makes of all may not be what it makes of a batch.
    plain = type(task.prepare) in (NoneType, Standardize) and type(task)._prepared is Task._prepared
    if not plain or not isinstance(layers[0], Convolutions):
        return None
    kept: list[tuple[Tensor, Framed]] = vars(task).setdefault(_PREPARED, [])
    for known, images in kept:
        if known is inputs:
            return images
    free, _ = torch.cuda.mem_get_info(task.device)
    # Prepared they are float32, for a while.
    if inputs.numel() * task.dtype.itemsize > _PREPARED_SHARE * free:
        return None
    kept.append((inputs, Framed.all_of(task._prepared(inputs))))
    return kept[-1][1]


def evaluation(task: BaseTask) -> Evaluation:
    """`task.evaluate`, with our kernels where they are asked for and know the network."""
    if not isinstance(task, Task) or not _ours(task):
        return task.evaluate
    own = ("evaluate", "_outputs", "_all_outputs")
    if any(getattr(type(task), name) is not getattr(Task, name) for name in own):
        return task.evaluate
    layers, _ = _layers(task, task._judging)
    if not layers:
        return task.evaluate
    from .layers import values_after

    channels = task.inputs.shape[1]

    def outputs(x: Tensor, inputs: Tensor) -> Iterator[tuple[slice, Tensor]]:
        if inputs.shape[1] != channels:  # not what the network takes: torch says so
            yield from task._all_outputs(x, inputs)
            return
        images, at = _framed(task, inputs, layers), _parameters(task, x[None])
        for chunk in task._chunks(len(inputs), _ACTIVATIONS):
            if images is None:
                some: Any = task._prepared(inputs[chunk])[None]
            else:
                numbers = torch.arange(chunk.start, min(chunk.stop, len(inputs)), device=task.device)
                some = images.of_clients(numbers[None])
            yield chunk, values_after(layers, some, at)[0][0]

    return partial(task.evaluate, outputs=outputs)


def _ours(task: Task) -> bool:
    """They round factors to ten bits: only where the run allows tf32."""
    allowed = torch.get_float32_matmul_precision() == "high" and task.dtype == torch.float32
    if not allowed or task.device.type != "cuda" or find_spec("triton") is None:
        return False
    # What has no tf32, or is no NVIDIA card, gains nothing by them.
    return torch.version.hip is None and torch.cuda.get_device_capability(task.device) >= (8, 0)


def _layers(task: Task, module: nn.Module) -> "tuple[list[Layer], Shape]":
    """The module as layers of ours, and the shape of an output; none if something in it is not known."""
    sample = task._prepared(task.inputs[:1])
    if sample.dtype != torch.float32 or any(_changed(layer) for layer in module.modules()):
        return [], ()
    # Weights that are shared or not trained are not in x under every name.
    if {name for name, _ in module.named_parameters(remove_duplicate=False)} != set(task._names):
        return [], ()
    layers, shape = _known(module, tuple(sample.shape[1:]))
    # Nor is anything trained that no layer of ours has.
    return (layers, shape) if {name for layer in layers for name in layer.names} == set(task._names) else ([], ())


def _changed(layer: nn.Module) -> bool:
    """Whether someone made it do other things than its class does: hooks, pruning, a forward of its own."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks) or "forward" in vars(layer)


def _known(network: nn.Module, shape: "Shape") -> "tuple[list[Layer], Shape]":
    """What a cohort's samples, [C, B, *shape], go through; nothing unless some of it is a convolution we know."""
    if type(network) is not nn.Sequential:
        return [], ()
    from .layers import Activation, Convolutions, Flatten, Product

    rest = list(network._modules.items())  # named_children() leaves out one that comes twice
    layers: list[Layer] = []
    while rest:
        blocks = []
        while rest and (found := _block(rest, shape)):
            block, shape, rest = found
            blocks.append(block)
        if blocks:
            layers.append(Convolutions(tuple(blocks)))
            continue
        name, module = rest[0]
        bias = None
        if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
            layers.append(Flatten())
            shape, rest = (torch.Size(shape).numel(),), rest[1:]
            continue
        if type(module) is nn.Linear and shape == (module.in_features,):
            layers.append(Product(f"{name}.weight"))
            shape, rest = (module.out_features,), rest[1:]
            bias = None if module.bias is None else f"{name}.bias"
        elif type(module) not in (nn.ReLU, nn.Dropout):
            return [], ()
        relu, drop, rest = _activation(rest)
        if bias or relu or drop:
            layers.append(Activation(bias, relu, drop))
    return (layers, shape) if any(isinstance(layer, Convolutions) for layer in layers) else ([], ())


def _activation(rest: "_Modules") -> "tuple[bool, float, _Modules]":
    """ReLU and dropout at the head of the modules, one of each at most, and what is left."""
    relu, drop = False, None
    while rest:
        module = rest[0][1]
        if type(module) is nn.ReLU and not relu:
            relu = True
        elif type(module) is nn.Dropout and drop is None:
            drop = _p(module)
        else:
            break
        rest = rest[1:]
    return relu, drop or 0.0, rest


def _block(modules: "_Modules", shape: "Shape") -> "tuple[Convolution, Shape, _Modules] | None":
    """Convolution, dropout or none, ReLU, pool at the head of the modules, and what is left."""
    from .layers import Convolution

    (name, conv), *rest = modules
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
    return Convolution(name, drop), (conv.out_channels, shape[1] // 2, shape[2] // 2), rest[2:]


def _p(dropout: nn.Dropout) -> float:
    return dropout.p if dropout.training else 0.0


Shape = tuple[int, ...]
_Modules = list[tuple[str, nn.Module]]
