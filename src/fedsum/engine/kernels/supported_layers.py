"""Which modules our kernels can compute: a sequential network as a list of their layers."""

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from .image_layers import Window
    from .layers import Convolution, Layer

Shape = tuple[int, ...]
_NamedModules = list[tuple[str, nn.Module]]
_Match = tuple[Any, Shape, _NamedModules]
"""of the modules at the head of a list: their layers, the shape of their output, and the modules after them"""
_MAX_BLOCK_CHANNELS = 64
_MAX_CHANNELS = 256
_MAX_TAPS = 256
"""of a max pool, which stores the tap of each value in one byte"""


def supported_layers(network: nn.Module, shape: Shape) -> "tuple[list[Layer], Shape]":
    """The layers of a sequential network with a convolution, for samples [C, B, *shape], and the shape of an output.

    No layers if one of the modules is not supported.
    """
    if type(network) is not nn.Sequential:
        return [], ()
    from .image_layers import ImageLayers
    from .layers import Convolutions

    rest = list(network._modules.items())  # named_children() leaves out repeated modules
    layers: list[Layer] = []
    while rest:
        match = _blocks(rest, shape) or _images(rest, shape) or _rows(rest, shape)
        if match is None:
            return [], ()
        more, shape, rest = match
        layers += more
    return (layers, shape) if any(isinstance(layer, Convolutions | ImageLayers) for layer in layers) else ([], ())


def _blocks(modules: _NamedModules, shape: Shape) -> _Match | None:
    from .layers import Convolutions

    blocks = []
    while modules and (match := _block(modules, shape)):
        block, shape, modules = match
        blocks.append(block)
    return ([Convolutions(tuple(blocks))], shape, modules) if blocks else None


def _images(modules: _NamedModules, shape: Shape) -> _Match | None:
    """Layers of images up to the next block, with activations between them."""
    from .image_layers import ImageLayers
    from .layers import Activation

    layers: list[Layer] = []
    values = 0
    while modules and not _block(modules, shape):
        if match := _convolution(modules, shape) or _norm(modules, shape) or _pool(modules, shape):
            layer, shape, modules = match
            layers.append(layer)
            values += torch.Size(shape).numel()
            continue
        relu, drop, rest = _activation(modules)
        if not layers or len(rest) == len(modules):
            break
        modules = rest
        if relu or drop:
            layers.append(Activation(None, relu, drop))
            values += torch.Size(shape).numel()
    return ([ImageLayers(tuple(layers), values)], shape, modules) if layers else None


def _rows(modules: _NamedModules, shape: Shape) -> _Match | None:
    """One layer of rows of numbers, with the activation after it."""
    from .layers import Activation, Flatten, Product

    name, module = modules[0]
    layers: list[Layer] = []
    rest, bias = modules[1:], None
    if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
        return [Flatten()], (torch.Size(shape).numel(),), rest
    if type(module) is nn.Linear and shape == (module.in_features,):
        layers.append(Product(f"{name}.weight"))
        shape, bias = (module.out_features,), None if module.bias is None else f"{name}.bias"
    elif type(module) in (nn.ReLU, nn.Dropout):
        rest = modules
    else:
        return None
    relu, drop, rest = _activation(rest)
    if bias or relu or drop:
        layers.append(Activation(bias, relu, drop))
    return layers, shape, rest


def _activation(rest: _NamedModules) -> tuple[bool, float, _NamedModules]:
    """ReLU and dropout at the head of the modules, at most one of each, and the modules after them."""
    relu, drop = False, None
    while rest:
        module = rest[0][1]
        if type(module) is nn.ReLU and not relu:
            relu = True
        elif type(module) is nn.Dropout and drop is None:
            drop = _drop_probability(module)
        else:
            break
        rest = rest[1:]
    return relu, drop or 0.0, rest


def _block(modules: _NamedModules, shape: Shape) -> "tuple[Convolution, Shape, _NamedModules] | None":
    """A 3x3 convolution, optional dropout, ReLU and a 2x2 max pool, on images of even size."""
    from .layers import Convolution

    (name, conv), *rest = modules
    if type(conv) is not nn.Conv2d or len(shape) != 3:
        return None
    plain = _is_plain(conv, shape) and (conv.kernel_size, conv.stride, conv.padding) == ((3, 3), (1, 1), (1, 1))
    plain = plain and conv.bias is not None and max(conv.in_channels, conv.out_channels) <= _MAX_BLOCK_CHANNELS
    drop = 0.0
    if rest and type(rest[0][1]) is nn.Dropout:
        drop, rest = _drop_probability(rest[0][1]), rest[1:]
    even = shape[1] % 2 == 0 and shape[2] % 2 == 0
    if not (plain and even and drop < 1 and len(rest) >= 2) or type(rest[0][1]) is not nn.ReLU:
        return None
    pool = rest[1][1]
    if (
        type(pool) is not nn.MaxPool2d
        or pool.return_indices
        or (pool.kernel_size, pool.stride, pool.padding, pool.dilation) != (2, 2, 0, 1)
    ):
        return None
    return Convolution(name, drop), (conv.out_channels, shape[1] // 2, shape[2] // 2), rest[2:]


def _convolution(modules: _NamedModules, shape: Shape) -> _Match | None:
    """A convolution of any size, stride and padding, with optional ReLU and dropout."""
    from .image_layers import WindowedConvolution

    (name, conv), *rest = modules
    if type(conv) is not nn.Conv2d or len(shape) != 3 or not _is_plain(conv, shape):
        return None
    window = _window(shape, conv.kernel_size, conv.stride, conv.padding)
    if window is None or max(conv.in_channels, conv.out_channels) > _MAX_CHANNELS:
        return None
    relu, drop, rest = _activation(rest)
    bias = None if conv.bias is None else f"{name}.bias"
    layer = WindowedConvolution(f"{name}.weight", bias, window, relu, drop)
    return layer, (conv.out_channels, window.rows, window.columns), rest


def _norm(modules: _NamedModules, shape: Shape) -> _Match | None:
    """A GroupNorm, with optional ReLU."""
    from .image_layers import GroupNorm

    (name, norm), *rest = modules
    if type(norm) is not nn.GroupNorm or len(shape) != 3 or norm.num_channels != shape[0]:
        return None
    relu = bool(rest) and type(rest[0][1]) is nn.ReLU
    return GroupNorm(name, norm.num_groups, norm.eps, norm.affine, relu), shape, rest[relu:]


def _pool(modules: _NamedModules, shape: Shape) -> _Match | None:
    """A max or an average pool without padding whose windows do not overlap."""
    from .image_layers import Pool

    (_, pool), *rest = modules
    largest = type(pool) is nn.MaxPool2d
    if largest:
        plain = not pool.return_indices and not pool.ceil_mode and pool.dilation == 1
    elif type(pool) is nn.AvgPool2d:
        plain = pool.divisor_override is None and not pool.ceil_mode
    else:
        plain = type(pool) is nn.AdaptiveAvgPool2d and pool.output_size in (1, (1, 1))
    if not plain or len(shape) != 3:
        return None
    if type(pool) is nn.AdaptiveAvgPool2d:
        window = _window(shape, shape[1:], shape[1:])
    else:
        window = _window(shape, pool.kernel_size, pool.stride, pool.padding)
    if window is None or window.padding != (0, 0) or (largest and window.taps > _MAX_TAPS):
        return None
    if window.size[0] > window.stride[0] or window.size[1] > window.stride[1]:
        return None
    return Pool(window, largest), (shape[0], window.rows, window.columns), rest


def _window(shape: Shape, size: Any, stride: Any, padding: Any = 0) -> "Window | None":
    """None if torch has a name for the padding, or if the image is too small."""
    from .image_layers import Window

    if isinstance(padding, str):
        return None
    pairs = ((number, number) if isinstance(number, int) else tuple(number) for number in (size, stride, padding))
    window = Window(shape[1], shape[2], *pairs)
    return window if window.rows > 0 and window.columns > 0 else None


def _is_plain(conv: nn.Conv2d, shape: Shape) -> bool:
    """Whether it takes these images, with neither dilation nor groups, and with zeros as padding."""
    plain = (conv.dilation, conv.groups, conv.padding_mode) == ((1, 1), 1, "zeros")
    return plain and conv.in_channels == shape[0]


def _drop_probability(dropout: nn.Dropout) -> float:
    return dropout.p if dropout.training else 0.0
