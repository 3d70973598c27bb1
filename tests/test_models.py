"""The paper's networks, layer by layer."""

import math

import pytest
import torch
from torch import nn

from fedsum import InputError
from fedsum.tasks.models import (
    cifar10_cnn,
    femnist_cnn,
    kaiming_normal_,
    lenet5,
    logistic,
    mlp,
    mnist_cnn,
    resnet18,
    svhn_cnn,
)

PAPER = {
    mnist_cnn: ("C(1,10)-R-M-C(10,20)-D-R-M-F-L(50)-R-D-L(10)", (1, 28, 28), 51_480),
    svhn_cnn: ("C(3,32)-R-M-C(32,32)-R-M-F-L(128)-R-L(10)", (3, 32, 32), 273_706),
    cifar10_cnn: ("C(3,32)-R-M-C(32,32)-R-M-F-L(256)-R-L(64)-R-L(10)", (3, 32, 32), 551_786),
}


def described(layer):
    match layer:
        case nn.Conv2d(kernel_size=(3, 3), stride=(1, 1), padding=(1, 1)):
            return f"C({layer.in_channels},{layer.out_channels})"
        case nn.MaxPool2d(kernel_size=2, stride=2, padding=0):
            return "M"
        case nn.Dropout(p=0.2):
            return "D"
        case nn.Linear():
            return f"L({layer.out_features})"
        case nn.ReLU():
            return "R"
        case nn.Flatten():
            return "F"
    raise AssertionError(layer)


@pytest.mark.parametrize("make", PAPER, ids=lambda make: make.__name__)
def test_the_papers_networks(make):
    layers, shape, parameters = PAPER[make]
    model = make()
    assert "-".join(described(layer) for layer in model) == layers
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert model(torch.zeros(2, *shape)).shape == (2, 10)
    assert make(classes=7)(torch.zeros(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize(("make", "classes"), [(femnist_cnn, 62), (lenet5, 10)])
def test_networks_of_other_benchmarks(make, classes):
    assert make()(torch.zeros(2, 1, 28, 28)).shape == (2, classes)
    assert make(classes=7)(torch.zeros(2, 1, 28, 28)).shape == (2, 7)


def test_logistic_and_mlp_flatten_first():
    images = torch.zeros(5, 1, 8, 8)
    assert [described(layer) for layer in logistic(64, 3)] == ["F", "L(3)"]
    assert [described(layer) for layer in mlp(64, [32, 16], 3)] == ["F", "L(32)", "R", "L(16)", "R", "L(3)"]
    assert logistic(64, 3)(images).shape == mlp(64, [32, 16], 3)(images).shape == (5, 3)


def test_kaiming_normal():
    torch.manual_seed(0)
    inner = [nn.Conv2d(8, 500, 3), nn.Flatten(), nn.Linear(500, 400, bias=False), nn.LayerNorm(400)]
    model = nn.Sequential(*inner, nn.Linear(400, 3))
    last = [values.clone() for values in model[-1].parameters()]
    assert kaiming_normal_(model) is model
    convolution, _, linear, norm, _ = model
    for layer, fan_in in ((convolution, 8 * 9), (linear, 500)):
        assert float(layer.weight.detach().std()) == pytest.approx(math.sqrt(2 / fan_in), rel=0.02)
        assert layer.weight.detach().abs().max() > 3 * math.sqrt(2 / fan_in)
    assert not convolution.bias.any()
    assert norm.weight.eq(1).all()
    assert all(torch.equal(now, before) for now, before in zip(model[-1].parameters(), last, strict=True))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: logistic(0, 10), "inputs = 0"),
        (lambda: mlp(4, [0], 10), "hidden = 0"),
        (lambda: mlp(4, [2], 1.5), "classes = 1.5"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)


def test_resnet18_layer_by_layer():
    """The network of He et al. for CIFAR: 2 blocks per stage, widths 64 to 512, no batch statistics."""
    model = resnet18(7)
    assert sum(p.numel() for p in model.parameters()) == 11_173_962 - 3 * 513
    assert not list(model.buffers())
    convolutions = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    main = [c for c in convolutions if c.kernel_size == (3, 3)]
    assert [c.out_channels for c in main] == [64] * 5 + [128] * 4 + [256] * 4 + [512] * 4
    assert [place for place, c in enumerate(main) if c.stride == (2, 2)] == [5, 9, 13]
    assert [(c.in_channels, c.out_channels) for c in convolutions if c.kernel_size == (1, 1)] == [
        (64, 128),
        (128, 256),
        (256, 512),
    ]
    norms = [layer for layer in model.modules() if isinstance(layer, nn.GroupNorm)]
    assert len(norms) == len(convolutions) == 20
    assert {norm.num_channels // norm.num_groups for norm in norms} == {16}
    thin = resnet18(3, channels=1, width=4)
    before = []
    thin[-3].register_forward_hook(lambda _, inputs, __: before.append(inputs[0].shape))
    assert thin(torch.zeros(2, 1, 32, 32)).shape == (2, 3)
    assert before == [(2, 32, 4, 4)]  # stride 1 and no pooling in the stem
    block = thin[3]
    x = torch.randn(2, 4, 8, 8)
    assert torch.equal(block(x), torch.relu(block.layers(x) + x))
