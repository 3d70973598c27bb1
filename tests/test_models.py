"""The paper's networks, layer by layer."""

import math

import pytest
import torch
from torch import nn

from fedsum import InputError
from fedsum.tasks.models import cifar10_cnn, kaiming_normal_, logistic, mlp, mnist_cnn, svhn_cnn

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
