"""Convolutions, pools and GroupNorm of any size in our own kernels, interpreted on a CPU: equal to torch's layers."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedsum.engine.kernels import networks
from fedsum.engine.kernels.supported_layers import supported_layers
from fedsum.tasks import Task

pytest.importorskip("triton")
from fedsum.engine.kernels import image_layers, layers

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="triton is interpreted only where there is no GPU")
CLIENTS = 2


def grid(*shape, seed=0):
    """Numbers of few bits, which rounding to ten bits does not change; many are equal."""
    return torch.randint(-16, 17, shape, generator=torch.Generator().manual_seed(seed)) / 8


def parameters_of(network, draw=grid):
    """Parameters of each client, [C, ...], as views of rows whose length is not their own, as in a run."""
    sizes = {name: p.shape for name, p in network.named_parameters()}
    rows = draw(CLIENTS, sum(shape.numel() for shape in sizes.values()) + 3, seed=1)
    values, first = {}, 0
    for name, shape in sizes.items():
        values[name] = rows[:, first : first + shape.numel()].view(CLIENTS, *shape)
        first += shape.numel()
    return values


def both(network, images, draw=grid):
    """Outputs, gradients of the images and gradients of all parameters, by our layers and by torch."""
    ours, shape = supported_layers(nn.Sequential(*network, nn.Flatten()), tuple(images.shape[2:]))
    assert isinstance(ours[0], image_layers.ImageLayers)
    x = parameters_of(nn.Sequential(*network), draw)
    g = {name: torch.full_like(values, torch.nan) for name, values in x.items()}
    out, saved = layers.forward(ours, images, x)
    assert out.shape[2:] == shape
    slope = draw(*out.shape, seed=2)
    back = layers.backward(ours, slope, saved, x, g, further=True)
    module, theirs = nn.Sequential(*network, nn.Flatten()), ([], [], {name: [] for name in x})
    for client in range(CLIENTS):
        one = {name: values[client].clone().requires_grad_() for name, values in x.items()}
        inputs = images[client].clone().requires_grad_()
        outputs = torch.func.functional_call(module, one, (inputs,))
        grads = torch.autograd.grad(outputs, [inputs, *one.values()], slope[client])
        theirs[0].append(outputs.detach())
        theirs[1].append(grads[0])
        for name, grad in zip(one, grads[1:], strict=True):
            theirs[2][name].append(grad)
    expected = torch.stack(theirs[0]), torch.stack(theirs[1]), {n: torch.stack(v) for n, v in theirs[2].items()}
    return (out, back, g), expected


NETWORKS = {
    "unpadded": ([nn.Conv2d(3, 5, 3), nn.ReLU()], (3, 6, 9)),
    "5x5": ([nn.Conv2d(1, 4, 5, padding=2), nn.ReLU()], (1, 7, 6)),
    "no-bias": ([nn.Conv2d(2, 3, 3, padding=1, bias=False)], (2, 5, 5)),
    "stride": ([nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU()], (3, 7, 8)),
    "oblong": ([nn.Conv2d(2, 3, (3, 2), stride=(2, 3), padding=(1, 0))], (2, 8, 7)),
    "1x1": ([nn.Conv2d(20, 6, 1), nn.ReLU()], (20, 4, 4)),
    "two": ([nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.ReLU(), nn.MaxPool2d(2)], (3, 8, 8)),
    "wide": ([nn.Conv2d(2, 70, 3)], (2, 4, 4)),
    "max-pool": ([nn.MaxPool2d(2)], (3, 7, 9)),
    "max-pool-3": ([nn.MaxPool2d(3, stride=4)], (2, 11, 9)),
    "average-pool": ([nn.AvgPool2d(2)], (3, 5, 6)),
    "oblong-pool": ([nn.AvgPool2d((1, 2), stride=(2, 3))], (2, 6, 7)),
    "whole-pool": ([nn.AdaptiveAvgPool2d(1)], (3, 5, 6)),
    "norm": ([nn.GroupNorm(2, 6)], (6, 5, 4)),
    "norm-relu": ([nn.GroupNorm(3, 9), nn.ReLU()], (9, 5, 4)),
    "norm-eps": ([nn.GroupNorm(2, 4, eps=2.0)], (4, 4, 4)),
    "plain-norm": ([nn.GroupNorm(1, 4, affine=False), nn.ReLU()], (4, 6, 3)),
    "pool-relu": ([nn.AvgPool2d(2), nn.ReLU()], (3, 6, 6)),
    "norm-net": (
        [nn.Conv2d(1, 6, 3, padding=1), nn.GroupNorm(2, 6), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 3, 3)],
        (1, 8, 8),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_and_gradients_are_those_of_torch(name):
    network, shape = NETWORKS[name]
    (out, back, g), (right, right_back, right_g) = both(network, grid(CLIENTS, 3, *shape))
    # Outputs of a GroupNorm have more bits than factors.
    tolerance = 2e-3 if "norm" in name else 1e-6
    assert (out - right).norm() <= tolerance * right.norm()
    assert (back - right_back).norm() <= tolerance * right_back.norm()
    assert set(g) == set(right_g)
    for parameter, grad in g.items():
        assert (grad - right_g[parameter]).norm() <= tolerance * right_g[parameter].norm(), parameter


def test_sums_over_many_pixels_are_complete(monkeypatch):
    monkeypatch.setattr(image_layers, "_PIXELS_PER_SHARE", 100)
    network = [nn.Conv2d(2, 3, 3, padding=1), nn.ReLU()]
    (_, _, g), (_, _, right) = both(network, grid(CLIENTS, 5, 2, 11, 13))  # 715 pixels: seven shares
    for name in right:
        assert (g[name] - right[name]).norm() <= 1e-6 * right[name].norm()


@pytest.mark.parametrize("scale", [2.0**-40, 2.0**40])
@pytest.mark.parametrize("of", ["images", "parameters", "slopes"])
def test_small_and_large_values_lose_nothing(of, scale):
    seeds = {"images": 0, "parameters": 1, "slopes": 2}

    def draw(*shape, seed=0):
        return grid(*shape, seed=seed) * (scale if seed == seeds[of] else 1.0)

    found, right = both([nn.Conv2d(3, 5, 3, bias=False), nn.ReLU()], draw(CLIENTS, 2, 3, 6, 6), draw)
    for one, other in [*zip(found[:2], right[:2], strict=True), (found[2]["0.weight"], right[2]["0.weight"])]:
        assert (one - other).norm() <= 1e-6 * other.norm()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's
def test_what_is_not_a_number_stays_so():
    images = grid(CLIENTS, 2, 3, 6, 6)
    images[1, 1, 0, 2, 3] = torch.nan
    for network in ([nn.Conv2d(3, 5, 3), nn.ReLU()], [nn.MaxPool2d(2)], [nn.GroupNorm(1, 3), nn.ReLU()]):
        (out, _, g), (right, _, right_g) = both(network, images)
        assert torch.equal(out.isnan(), right.isnan())
        for name in g:
            assert torch.equal(g[name].isnan(), right_g[name].isnan())


def test_dropout_after_a_convolution_goes_back_as_it_went_forward():
    network = nn.Sequential(nn.Conv2d(2, 8, 3), nn.ReLU(), nn.Dropout(0.25), nn.Flatten())
    ours, _ = supported_layers(network, (2, 12, 12))
    x = {name: values.abs() + 0.125 for name, values in parameters_of(network).items()}
    images = grid(CLIENTS, 4, 2, 12, 12).abs() + 0.125  # without dropout no output is zero
    out, saved = layers.forward(ours, images, x)
    plain = torch.stack([F.conv2d(i, w, b).flatten(1) for i, w, b in zip(images, *x.values(), strict=True)])
    dropped = out == 0
    assert abs(float(dropped.float().mean()) - 0.25) < 0.03
    assert torch.allclose(out, torch.where(dropped, 0.0, plain / 0.75), rtol=1e-5)
    assert not torch.equal(dropped[0], dropped[1])
    g = {name: torch.full_like(values, torch.nan) for name, values in x.items()}
    slope = grid(*out.shape, seed=2)
    layers.backward(ours, slope, saved, x, g)
    passed = torch.where(dropped, 0.0, slope / 0.75).view(CLIENTS, 4, 8, 10, 10)
    assert torch.allclose(g["0.bias"], passed.sum((1, 3, 4)), rtol=1e-5, atol=1e-3)


def pfl():
    """The shape of pfl's CIFAR-10 network, smaller."""
    first = [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.0)]
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(72, 9), nn.ReLU(), nn.Linear(9, 4))


def femnist():
    """The shape of the FEMNIST CNN, smaller: two 5x5 convolutions."""
    first = [nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(4, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(24, 7), nn.ReLU(), nn.Linear(7, 4))


def lenet():
    first = [nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 3), nn.ReLU(), nn.AvgPool2d(2)]
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))


def normalised():
    first = [nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2)]
    block = [nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]  # has a kernel of its own
    return nn.Sequential(*first, *block, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


@pytest.fixture
def as_on_cuda(monkeypatch):
    from fedsum.engine.kernels import conv_pool

    monkeypatch.setattr(networks, "kernels_allowed", lambda device, dtype: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**30, 2**30))
    monkeypatch.setattr(conv_pool, "_SHARES", {1: 2, 6: 2})  # a GPU's number of programs would take long to interpret


@pytest.mark.parametrize(("make", "shape"), [(pfl, (3, 10, 10)), (femnist, (1, 8, 8)), (lenet, (1, 8, 8)),
                                             (normalised, (3, 8, 8))])  # fmt: skip
def test_whole_networks_train_and_evaluate(make, shape, as_on_cuda):
    data = [(grid(6, *shape, seed=i), torch.arange(6) % 4) for i in range(3)]
    task = Task(make, F.cross_entropy, data, data[0])
    x = torch.stack([task.init(seed) for seed in range(3)])
    batches = torch.stack([task.batches(0, 0, client, 2, 5) for client in range(3)], dim=1)
    steps, still = networks.steps(task), (torch.zeros_like(x), torch.tensor(0.0))
    assert steps is not None
    found = steps(x, *still, torch.arange(3), batches)
    exact = sum(torch.stack([task.gradient(x[i], i, batch[i]) for i in range(3)]) for batch in batches)
    assert (found - exact).norm() <= 1e-2 * exact.norm()  # ReLU and pools may choose differently after rounding
    evaluated = networks.evaluation(task)(x[0])
    assert evaluated == pytest.approx(task.evaluate(x[0]), rel=1e-3)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 4, 3, dilation=2),
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(4, 4, 3, padding="same"),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(4, 300, 1),
        nn.MaxPool2d(3, stride=2),
        nn.MaxPool2d(2, padding=1),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.MaxPool2d(2, dilation=2),
        nn.AvgPool2d(2, padding=1),
        nn.AvgPool2d(2, divisor_override=3),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.AdaptiveAvgPool2d(2),
        nn.LPPool2d(2, 2),
        nn.Conv2d(4, 4, 9),
    ],
    ids=repr,
)
def test_other_layers_are_left_to_torch(layer):
    network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), layer, nn.Flatten())
    assert supported_layers(network, (3, 7, 7)) == ([], ())
