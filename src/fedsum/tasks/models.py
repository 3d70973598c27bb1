"""The paper's networks, two of other benchmarks and two simpler ones.

Initial weights are PyTorch's defaults, or `kaiming_normal_`.
"""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from ..base.checks import integer
from .normalization import groups

_DROPOUT = 0.2


def mnist_cnn(classes: int = 10) -> nn.Sequential:
    """The paper's CNN for MNIST, 1x28x28.

    >>> sum(p.numel() for p in mnist_cnn().parameters())
    51480
    """
    return nn.Sequential(
        _conv(1, 10),
        nn.ReLU(),
        nn.MaxPool2d(2),
        _conv(10, 20),
        nn.Dropout(_DROPOUT),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(20 * 7 * 7, 50),
        nn.ReLU(),
        nn.Dropout(_DROPOUT),
        nn.Linear(50, classes),
    )


def svhn_cnn(classes: int = 10) -> nn.Sequential:
    """The paper's CNN for SVHN, 3x32x32.

    >>> sum(p.numel() for p in svhn_cnn().parameters())
    273706
    """
    return nn.Sequential(*_two_convolutions(), nn.Linear(32 * 8 * 8, 128), nn.ReLU(), nn.Linear(128, classes))


def cifar10_cnn(classes: int = 10) -> nn.Sequential:
    """The paper's CNN for CIFAR-10, 3x32x32.

    >>> sum(p.numel() for p in cifar10_cnn().parameters())
    551786
    """
    return nn.Sequential(
        *_two_convolutions(),
        nn.Linear(32 * 8 * 8, 256),
        nn.ReLU(),
        nn.Linear(256, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )


def femnist_cnn(classes: int = 62) -> nn.Sequential:
    """The CNN of the LEAF benchmark for FEMNIST, 1x28x28.

    >>> sum(p.numel() for p in femnist_cnn().parameters())
    6603710
    """
    return nn.Sequential(
        *[nn.Conv2d(1, 32, kernel_size=5, padding=2), nn.ReLU(), nn.MaxPool2d(2)],
        *[nn.Conv2d(32, 64, kernel_size=5, padding=2), nn.ReLU(), nn.MaxPool2d(2)],
        *[nn.Flatten(), nn.Linear(64 * 7 * 7, 2048), nn.ReLU(), nn.Linear(2048, classes)],
    )


def lenet5(classes: int = 10) -> nn.Sequential:
    """LeNet-5 with ReLU, 1x28x28.

    >>> sum(p.numel() for p in lenet5().parameters())
    61706
    """
    return nn.Sequential(
        *[nn.Conv2d(1, 6, kernel_size=5, padding=2), nn.ReLU(), nn.AvgPool2d(2)],
        *[nn.Conv2d(6, 16, kernel_size=5), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten()],
        *[nn.Linear(16 * 5 * 5, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes)],
    )


class Residual(nn.Module):
    """relu(layers(x) + shortcut(x))"""

    def __init__(self, layers: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.layers, self.shortcut = layers, shortcut
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.layers(x) + self.shortcut(x))  # type: ignore[no-any-return]


def resnet18(classes: int = 10, *, channels: int = 3, width: int = 64) -> nn.Sequential:
    """The paper's ResNet-18 for CIFAR-10 and CIFAR-100, 3x32x32, with GroupNorm instead of BatchNorm.

    The stem is that of CIFAR networks: a 3x3 convolution of stride 1, no pooling. Batch statistics are ill-defined
    across clients, and they are buffers, which control variates must not touch; a GroupNorm has none.

    Args:
      channels: of the images.
      width: channels of the first stage; each of the other three stages doubles them.

    >>> sum(p.numel() for p in resnet18().parameters())
    11173962
    """
    widths = [integer("width", width, low=1) << stage for stage in range(4)]
    layers: list[nn.Module] = [_conv3(channels, width, 1), _norm(width), nn.ReLU()]
    for inputs, outputs, stride in zip([width, *widths], widths, (1, 2, 2, 2), strict=False):
        layers += [_residual(inputs, outputs, stride), _residual(outputs, outputs, 1)]
    last = nn.Linear(widths[-1], integer("classes", classes, low=1))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)


def logistic(inputs: int, classes: int) -> nn.Sequential:
    """Logistic regression on the flattened input.

    >>> sum(p.numel() for p in logistic(784, 10).parameters())
    7850
    """
    return mlp(inputs, (), classes)


def mlp(inputs: int, hidden: Sequence[int], classes: int) -> nn.Sequential:
    """Fully connected layers of `hidden` widths on the flattened input, with ReLU between them.

    >>> sum(p.numel() for p in mlp(784, [200, 200], 10).parameters())
    199210
    """
    widths = [integer("inputs", inputs, low=1), *(integer("hidden", width, low=1) for width in hidden)]
    layers: list[nn.Module] = [nn.Flatten()]
    for width, next_width in pairwise(widths):
        layers += [nn.Linear(width, next_width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], integer("classes", classes, low=1)))


def kaiming_normal_(module: nn.Module) -> nn.Module:
    """Redraws the weights of all layers but the last, which has no ReLU: Kaiming normal for ReLU, biases zero.

    The authors of FedAU do the same. If the last layer is redrawn too, the initial loss on MNIST is 3 to 7,
    depending on the seed, instead of 2.5 to 3.

    >>> [bool(layer.bias.any()) for layer in kaiming_normal_(mlp(4, [3], 2)) if isinstance(layer, nn.Linear)]
    [False, True]
    """
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    for layer in layers[:-1]:
        nn.init.kaiming_normal_(layer.weight, mode="fan_in", nonlinearity="relu")
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    return module


def _residual(inputs: int, outputs: int, stride: int) -> Residual:
    shortcut: nn.Module = nn.Identity()
    if stride != 1 or inputs != outputs:
        shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), _norm(outputs))
    first = [_conv3(inputs, outputs, stride), _norm(outputs), nn.ReLU()]
    return Residual(nn.Sequential(*first, _conv3(outputs, outputs, 1), _norm(outputs)), shortcut)


def _conv3(inputs: int, outputs: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(groups(channels), channels)


def _two_convolutions() -> list[nn.Module]:
    return [
        _conv(3, 32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        _conv(32, 32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    ]


def _conv(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel_size=3, stride=1, padding=1)
