"""Which networks our kernels can compute, and the training steps and evaluations made of them."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from types import NoneType
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...base.checks import InputError
from ...tasks import Augment, BaseTask, ClientScores, Network, Outputs, Standardize, network_of
from ..cache import TaskCache, cache_of
from ..local_step import FinishedSums
from ..regularised import Regularised
from .supported_layers import Shape, supported_layers

if TYPE_CHECKING:
    from .conv_pool import PaddedImages
    from .layers import Layer

Evaluation = Callable[[Tensor], dict[str, float]]
ClientEvaluation = Callable[[Tensor], tuple[dict[str, float], ClientScores]]
_ALIGNMENT = 32
"""rows begin at multiples of this many elements: matrix products of unaligned rows take twice as long"""
_IMAGES_SHARE = 0.05
"""share of the free memory for all images of a set in the kernels' layout"""
_ACTIVATIONS = 4
"""activations that blocks of convolution, ReLU and pool hold at a time, in sizes of the input"""


class Steps(Protocol):
    def __call__(
        self,
        start: Tensor,
        correction: Tensor,
        step: Tensor,
        clients: Tensor,
        batches: Tensor,
        *scalars: Tensor,
        counts: Tensor | None = None,
    ) -> Tensor:
        """The sum of the raw gradients over the steps, [C, d].

        `scalars` are the plan's `pull` and `decay`. Without them, pull is 0 and decay is 1. `counts` are the clients'
        own numbers of steps; default: one per batch.
        """
        ...


def steps(task: BaseTask) -> Steps | None:
    """The local steps of the task with our kernels; None if the kernels do not support the task or the run.

    Steps are captured in a graph and must not copy from the host, which a user's loss or preparation may do.
    """
    extra = task if isinstance(task, Regularised) else None
    plain = task if extra is None else extra.task
    network = network_of(plain)
    if network is None or network.training is None or network.own_samples:
        return None
    if not kernels_allowed(network.device, network.dtype) or not _trains_plainly(network):
        return None
    layers, shape = _layers(network, network.training)
    # torch raises the error for a label that is not a class.
    if not layers or len(shape) != 1 or int(network.targets.max()) >= shape[0]:
        return None
    from .layers import backward, cross_entropy_gradient, forward, take_step

    samples = _samples(network, layers, cache_of(plain))

    @torch.no_grad()
    def all_steps(
        start: Tensor,
        correction: Tensor,
        step: Tensor,
        clients: Tensor,
        batches: Tensor,
        *scalars: Tensor,
        counts: Tensor | None = None,
    ) -> Tensor:
        d = start.shape[1]
        x, g = (start.new_empty(len(start), d + -d % _ALIGNMENT)[:, :d] for _ in range(2))
        x.copy_(start)
        total, scale = torch.zeros_like(start), None if network.scale is None else network.scale[clients]
        parameters, gradients, finished = network.parameters(x), network.parameters(g), FinishedSums(counts)
        for batch in batches:
            inputs, targets = samples(batch)
            outputs, saved = forward(layers, inputs, parameters)
            backward(layers, cross_entropy_gradient(outputs, targets), saved, parameters, gradients)
            if extra is None:
                take_step(x, total, g, start, correction, step, scale, *scalars)
            else:
                scaled = g if scale is None else g * scale[:, None]
                g.copy_(extra.regularise(scaled, x))
                take_step(x, total, g, start, correction, step, None, *scalars)
            finished.step_done(total)
        return finished.sums(total)

    return all_steps


def evaluation(task: BaseTask) -> Evaluation:
    """`task.evaluate`, with our kernels if they support the task and the run."""
    network, outputs = _kernel_outputs(task)
    if network is None or outputs is None:
        return task.evaluate
    return lambda x: network.evaluate(x, outputs)


def client_evaluation(task: BaseTask) -> ClientEvaluation:
    """`task.evaluate_clients`, with our kernels if they support the task and the run."""
    evaluate_clients: ClientEvaluation | None = getattr(task, "evaluate_clients", None)
    if evaluate_clients is None:
        accepted = f"a task with the method evaluate_clients, which {type(task).__name__} does not have"
        raise InputError("per_client", True, accepted)
    network, outputs = _kernel_outputs(task)
    if network is None or outputs is None:
        return evaluate_clients
    return lambda x: network.evaluate_clients(x, outputs)


def _kernel_outputs(task: BaseTask) -> tuple[Network | None, Outputs | None]:
    """The outputs of the task's network with our kernels; None if they do not support the task or the run."""
    network = network_of(task)
    if network is None or network.evaluation is None or not kernels_allowed(network.device, network.dtype):
        return network, None
    layers, _ = _layers(network, network.evaluation)
    if not layers:
        return network, None
    from .layers import forward

    channels, cache, activations = network.inputs.shape[1], cache_of(task), _activations(network, layers)

    def outputs(x: Tensor, inputs: Tensor) -> Iterator[tuple[slice, Tensor]]:
        if inputs.shape[1] != channels:  # torch raises the error
            yield from network.outputs(x, inputs)
            return
        images, parameters = _converted(network, inputs, layers, cache), network.parameters(x[None])
        for chunk in network.chunks(len(inputs), activations):
            if images is None:
                values: Any = network.prepared(inputs[chunk])[None]
            else:
                indices = torch.arange(chunk.start, min(chunk.stop, len(inputs)), device=network.device)
                values = images.select(indices[None])
            yield chunk, forward(layers, values, parameters)[0][0]

    return network, outputs


def _activations(network: Network, layers: "list[Layer]") -> int:
    """The memory of an evaluation per sample, in sizes of the input."""
    from .image_layers import ImageLayers

    # Outputs are stored as float32 and as the next layer's factors.
    values = sum(2 * layer.values for layer in layers if isinstance(layer, ImageLayers))
    return _ACTIVATIONS + values // network.inputs[0].numel()


def kernels_allowed(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the run allows tf32, since our kernels round factors to ten bits, and the device has it."""
    tf32 = torch.get_float32_matmul_precision() == "high" and dtype == torch.float32
    if not tf32 or device.type != "cuda" or find_spec("triton") is None:
        return False
    # AMD devices and NVIDIA devices without tf32 would gain nothing.
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)


def _trains_plainly(network: Network) -> bool:
    """Whether preparation and augmentation are fedsum's own, and the loss is the mean cross entropy of labels."""
    if not _prepares_plainly(network) or type(network.augment) not in (NoneType, Augment):
        return False
    loss = network.loss
    if isinstance(loss, nn.CrossEntropyLoss):
        plain = (loss.weight, loss.label_smoothing, loss.reduction) == (None, 0.0, "mean")
        plain = plain and type(loss) is nn.CrossEntropyLoss and not _modified(loss)
    else:
        plain = loss is F.cross_entropy
    # torch may leave negative labels out of the mean.
    labels = network.targets.dim() == 1 and network.targets.dtype == torch.int64
    return plain and labels and int(network.targets.min()) >= 0


def _prepares_plainly(network: Network) -> bool:
    return type(network.prepare) in (NoneType, Standardize)


def _samples(
    network: Network, layers: "list[Layer]", cache: TaskCache
) -> "Callable[[Tensor], tuple[Tensor | PaddedImages, Tensor]]":
    """The samples of a batch. If a convolution is first and all images fit in memory, they are converted only once."""
    augment, images = network.augment, _converted(network, network.inputs, layers, cache)
    if images is None:
        return network.samples
    if augment is None:
        return lambda batch: (images.select(batch), network.targets[batch])
    crop, fill = augment.crop, _fill(network)
    if fill is None:
        return network.samples
    return lambda batch: (images.cropped(batch, crop, fill), network.targets[batch[..., 0]])


def _fill(network: Network) -> Tensor | None:
    """The prepared colour of the padding that crops are taken from, [channels]; None without fedsum's augmentation."""
    if type(network.augment) is not Augment:
        return None
    # The first crop begins in the padding. Without padding no crop reads the colour.
    corner = network.augment.apply(network.inputs[:1], torch.zeros(1, 3, dtype=torch.int64, device=network.device))
    return network.prepared(corner[..., :1, :1]).flatten()


def _converted(network: Network, inputs: Tensor, layers: "list[Layer]", cache: TaskCache) -> "PaddedImages | None":
    """All inputs of a set in the layout of convolutions; None if no convolution is first, or they do not fit."""
    from .conv_pool import PaddedImages
    from .layers import Convolutions

    # A user's preparation may treat a batch in another way than a whole set.
    if not _prepares_plainly(network) or not isinstance(layers[0], Convolutions):
        return None
    images: PaddedImages
    for converted_inputs, images in cache.image_sets:
        if converted_inputs is inputs:
            return images
    free, _ = torch.cuda.mem_get_info(network.device)
    # Prepared images are float32 until they are converted.
    if inputs.numel() * network.dtype.itemsize > _IMAGES_SHARE * free:
        return None
    fill = _fill(network) if inputs is network.inputs else None
    images = PaddedImages.of_set(network.prepared(inputs), fill)
    cache.image_sets.append((inputs, images))
    return images


def _layers(network: Network, module: nn.Module) -> "tuple[list[Layer], Shape]":
    """The module as our layers, and the shape of an output; no layers if one of them is not supported."""
    sample = network.prepared(network.inputs[:1])
    if sample.dtype != torch.float32 or any(_modified(layer) for layer in module.modules()):
        return [], ()
    # x does not hold frozen parameters, and holds shared ones under one name only.
    if {name for name, _ in module.named_parameters(remove_duplicate=False)} != set(network.names):
        return [], ()
    layers, shape = supported_layers(module, tuple(sample.shape[1:]))
    # Every trained parameter must belong to one of our layers.
    return (layers, shape) if {name for layer in layers for name in layer.names} == set(network.names) else ([], ())


def _modified(layer: nn.Module) -> bool:
    """Whether the layer computes anything other than its class: hooks, pruning, or its own forward."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks) or "forward" in vars(layer)
