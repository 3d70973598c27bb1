"""Our own kernels, interpreted on a CPU (conftest.py sees to it): exact but for the rounding done on purpose."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedsum.engine import fused
from fedsum.tasks import Task, models

conv_pool = pytest.importorskip("fedsum.engine.conv_pool", reason="needs triton")
INTERPRETED = not torch.cuda.is_available()
pytestmark = pytest.mark.skipif(not INTERPRETED, reason="triton is interpreted only where there is no GPU")


def grid(*shape, seed=0):
    """Numbers of few bits, which no rounding changes; many are equal."""
    return torch.randint(-32, 33, shape, generator=torch.Generator().manual_seed(seed)) / 16


def reference(images, weight, bias):
    """Client by client, channels innermost as in the kernels."""
    pooled = [
        F.max_pool2d(F.relu(F.conv2d(x.permute(0, 3, 1, 2), w, b, padding=1)), 2)
        for x, w, b in zip(images, weight, bias, strict=True)
    ]
    return torch.stack(pooled).permute(0, 1, 3, 4, 2)


def apply(images, weight, bias, drop=0.0, seed=0):
    return conv_pool.ConvPool.apply(images, conv_pool.spread(weight), bias, torch.tensor([seed]), drop)


# 16 numbers a patch or 48 are one operand; 5 and 20 channels leave gaps in their blocks, 40 take two words of 32.
@pytest.mark.parametrize(("ins", "outs"), [(1, 10), (3, 32), (5, 20), (16, 32), (40, 7)])
@pytest.mark.parametrize("order", ["channels last", "channels first"])
def test_values_and_gradients_are_those_of_torch(ins, outs, order):
    clients, batch, height, width = 2, 13, 6, 10  # more pixels than a program takes, and no multiple of it
    images = grid(clients, batch, height, width, ins)
    if order == "channels first":
        images = images.permute(0, 1, 4, 2, 3).contiguous().permute(0, 1, 3, 4, 2)
    weight, bias = grid(clients, outs, ins, 3, 3, seed=1), grid(clients, outs, seed=2)
    slope = grid(clients, batch, height // 2, width // 2, outs, seed=3)
    inputs = [images.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()]
    ours, _ = apply(*inputs)
    theirs = reference(*inputs)
    assert torch.allclose(ours, theirs, rtol=2**-11, atol=0)
    assert (ours == 0).any()
    assert (ours > 0).any()
    found, expected = (torch.autograd.grad(pooled, inputs, slope) for pooled in (ours, theirs))
    for got, right, bits in zip(found, expected, (23, 10, 23), strict=True):
        assert (got - right).norm() <= 2 ** (2 - bits) * right.norm()


def test_rounding_is_to_the_nearest_of_ten_bits():
    x = torch.tensor([1.0, 1 + 2**-11, 1 + 2**-10, 1 + 0.49 * 2**-10, -3.1415927, 0.0, torch.inf])
    expected = torch.tensor([1.0, 1 + 2**-10, 1 + 2**-10, 1.0, -3.140625, 0.0, torch.inf])
    assert torch.equal(conv_pool.rounded(x), expected)


def test_what_is_not_a_number_stays_so():
    nan = torch.tensor([0x7FFFFFFF], dtype=torch.int32).view(torch.float32)  # as CUDA writes it
    assert conv_pool.rounded(nan).isnan()
    images, weight, bias = grid(1, 2, 4, 4, 5), grid(1, 6, 5, 3, 3), grid(1, 6)
    assert apply(images, weight, bias + nan)[0].isnan().all()
    images[0, 1, 0, 2, 0] = nan  # in a window, two of the four pixels see it
    assert torch.equal(apply(images, weight, bias)[0].isnan(), reference(images, weight, bias).isnan())
    images = grid(1, 2, 4, 4, 5)
    weight.requires_grad_()
    pooled, _ = apply(images, weight, bias)
    (g,) = torch.autograd.grad(pooled, weight, torch.full_like(pooled, nan.item()))
    assert not g.isfinite().all()


@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_filters_of_very_small_or_large_slopes_lose_nothing(scale):
    images, weight, bias = grid(2, 3, 8, 8, 5), grid(2, 6, 5, 3, 3, seed=1).requires_grad_(), grid(2, 6, seed=2)
    slope = grid(2, 3, 4, 4, 6, seed=3)
    one, other = (torch.autograd.grad(apply(images, weight, bias)[0], weight, slope * s)[0] for s in (1.0, scale))
    assert torch.allclose(other / scale, one, rtol=1e-4, atol=1e-3 * float(one.abs().max()))


def test_a_slope_that_relu_stops_does_not_count():
    images, weight, bias = grid(1, 2, 4, 4, 5), grid(1, 6, 5, 3, 3, seed=1).requires_grad_(), grid(1, 6, seed=2)
    pooled, code = apply(images, weight, bias)
    slope = grid(*pooled.shape, seed=3)
    (right,) = torch.autograd.grad(pooled, weight, slope, retain_graph=True)
    (got,) = torch.autograd.grad(pooled, weight, slope.masked_fill(code == 4, 1e9))
    assert right.any()
    assert torch.equal(got, right)


def test_a_client_without_slope_has_no_gradient():
    weight = grid(1, 6, 5, 3, 3, seed=1).requires_grad_()
    pooled, _ = apply(grid(1, 2, 4, 4, 5), weight, grid(1, 6))
    (g,) = torch.autograd.grad(pooled, weight, torch.zeros_like(pooled))
    assert not g.any()


def test_dropout_keeps_its_share_and_differs_by_client_and_seed():
    clients, batch, outs, drop = 2, 40, 8, 0.5
    images, weight = torch.zeros(clients, batch, 8, 8, 1), torch.zeros(clients, outs, 1, 3, 3)
    bias = torch.ones(clients, outs, requires_grad=True)
    pooled, code = apply(images, weight, bias, drop, seed=1)
    assert set(pooled.unique().tolist()) == {0.0, 2.0}
    # The first pixel of the four that was kept, or none: 1/2, 1/4, 1/8, 1/16, 1/16.
    share = code.long().flatten().bincount(minlength=5) / code.numel()
    assert torch.allclose(share, torch.tensor([8, 4, 2, 1, 1]) / 16, atol=0.02)
    (g,) = torch.autograd.grad(pooled, bias, torch.ones_like(pooled))
    assert torch.equal(g, (pooled > 0).sum((1, 2, 3)) / (1 - drop))
    assert not torch.equal(code[0], code[1])
    assert not torch.equal(code, apply(images, weight, bias, drop, seed=2)[1])
    assert torch.equal(code, apply(images, weight, bias, drop, seed=1)[1])


def test_gradients_go_through_the_pixels_that_were_kept():
    ins, outs, drop = 5, 6, 0.25
    images, weight, bias = grid(2, 3, 4, 6, ins), grid(2, outs, ins, 3, 3, seed=1), grid(2, outs, seed=2)
    inputs = [tensor.requires_grad_() for tensor in (images, weight, bias)]
    pooled, code = apply(*inputs, drop, seed=3)
    assert len(code.unique()) == 5
    # What the kernel chose, out of torch's own convolution.
    zipped = zip(images, weight, bias, strict=True)
    whole = torch.stack([F.conv2d(x.permute(0, 3, 1, 2), w, b, padding=1) for x, w, b in zipped])
    four = whole.unflatten(4, (3, 2)).unflatten(3, (2, 2)).permute(0, 1, 3, 5, 2, 4, 6).flatten(5)
    chosen = four.gather(5, code.long().clamp_max(3)[..., None])[..., 0] * (code < 4) / (1 - drop)
    assert torch.allclose(pooled, chosen, rtol=2**-11, atol=0)
    slope = grid(*pooled.shape, seed=4)
    found, expected = (torch.autograd.grad(value, inputs, slope) for value in (pooled, chosen))
    for got, right in zip(found, expected, strict=True):
        assert (got - right).norm() <= 1e-3 * right.norm()


def task_of(make, shape=(1, 8, 8), clients=3, **options):
    draw = torch.Generator().manual_seed(0)
    data = [(torch.randn(6, *shape, generator=draw), torch.randint(10, (6,), generator=draw)) for _ in range(clients)]
    return Task(make, F.cross_entropy, data, data[0], **options)


@pytest.fixture
def as_on_cuda(monkeypatch):
    monkeypatch.setattr(fused, "_ours", lambda task: isinstance(task, Task))


def twin_loss(task, x, inputs, targets):
    """One client's loss layer by layer, with the kernels' rounding: of two nearly equal pixels it takes the same."""
    parameters, rounded, values = task._parameters(x), conv_pool.rounded, inputs
    for name, layer in task._training._modules.items():
        if isinstance(layer, nn.Conv2d):
            weight, bias = rounded(parameters[f"{name}.weight"]), parameters[f"{name}.bias"]
            values = F.conv2d(rounded(values), weight, bias, padding=1)
        elif isinstance(layer, nn.MaxPool2d):
            values = rounded(layer(values))
        elif isinstance(layer, nn.Linear):
            values = F.linear(values, parameters[f"{name}.weight"], parameters.get(f"{name}.bias"))
        else:
            values = layer(values)
    return task.loss(values, targets)


def both(task):
    """The gradients of all clients by our kernels and by the twin."""
    x = torch.stack([task.init(seed) for seed in range(task.n)]).requires_grad_()
    batch = torch.stack([task.batches(0, 0, client, 1, 6)[0] for client in range(task.n)])
    clients = torch.arange(task.n)
    twins = []
    for client in clients:
        (g,) = torch.autograd.grad(twin_loss(task, x[client], *task.samples(batch[client])), x)
        twins.append(g[client] if task.scale is None else g[client] * task.scale[client])
    return fused.gradients(task)(x.detach(), clients, batch), torch.stack(twins)


@pytest.mark.parametrize("make", [models.mnist_cnn, models.svhn_cnn, models.cifar10_cnn])
def test_the_networks_of_the_paper_are_known(make, as_on_cuda):
    shape = (1, 28, 28) if make is models.mnist_cnn else (3, 32, 32)
    task = task_of(make, shape, clients=2, weights=[0.25, 0.75])
    task._training.eval()  # no dropout: two ways of drawing cannot agree
    ours, twin = both(task)
    assert (ours - twin).norm() <= 1e-3 * twin.norm()
    x = task.init(0)
    found, expected = fused.evaluation(task)(x), task.evaluate(x)
    assert found == pytest.approx(expected, rel=1e-3)
    assert found["train_loss"] != expected["train_loss"]


def block(ins, outs, *between, **options):
    return [nn.Conv2d(ins, outs, 3, **({"padding": 1} | options)), *between, nn.ReLU(), nn.MaxPool2d(2)]


def head(features):
    return [nn.Flatten(), nn.Linear(features, 10)]


def test_a_layer_that_comes_twice_and_another_loss(as_on_cuda):
    relu = nn.ReLU()

    def make():
        return nn.Sequential(*block(1, 4), nn.Flatten(), nn.Linear(64, 12, bias=False), relu, nn.Linear(12, 10), relu)

    task = task_of(make)
    task.loss = lambda outputs, targets: F.cross_entropy(outputs, targets, label_smoothing=0.1)
    ours, twin = both(task)
    assert (ours - twin).norm() <= 1e-3 * twin.norm()


def tied():
    one = nn.Linear(64, 64)
    return nn.Sequential(*block(1, 4), nn.Flatten(), one, one, nn.Linear(64, 10))


def frozen():
    network = nn.Sequential(*block(1, 4), *head(64))
    network[0].bias.requires_grad_(False)
    return network


def hooked(change):
    network = nn.Sequential(*block(1, 4), *head(64))
    change(network[1])
    return network


UNKNOWN = {
    "no convolution": lambda: nn.Sequential(*head(64)),
    "not sequential": lambda: nn.Linear(8, 10),
    "stride": lambda: nn.Sequential(*block(1, 4, stride=2), *head(16)),
    "no padding": lambda: nn.Sequential(*block(1, 4, padding=0), *head(36)),
    "no bias": lambda: nn.Sequential(*block(1, 4, bias=False), *head(64)),
    "reflected": lambda: nn.Sequential(*block(1, 4, padding_mode="reflect"), *head(64)),
    "too many channels": lambda: nn.Sequential(*block(1, 65), *head(65 * 16)),
    "groups": lambda: nn.Sequential(*block(1, 4), *block(4, 4, groups=2), *head(16)),
    "an odd image later on": lambda: nn.Sequential(*block(1, 4), *block(4, 4), *block(4, 4), *block(4, 4), *head(4)),
    "other channels": lambda: nn.Sequential(*block(3, 4), *head(64)),
    "other channels between": lambda: nn.Sequential(*block(1, 4), *block(6, 4), *head(16)),
    "a hook": lambda: hooked(lambda layer: layer.register_forward_hook(lambda layer, inputs, output: 3 * output)),
    "a forward of its own": lambda: hooked(lambda layer: setattr(layer, "forward", torch.tanh)),
    "indices": lambda: nn.Sequential(*block(1, 4)[:2], nn.MaxPool2d(2, return_indices=True), *head(64)),
    "another pool": lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), *head(64)),
    "wider pool": lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), *head(16)),
    "no pool": lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), *head(256)),
    "another layer": lambda: nn.Sequential(*block(1, 4), nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 10)),
    "tied weights": tied,
    "frozen weights": frozen,
}


@pytest.mark.parametrize("make", UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_not_known_is_left_to_torch(make, as_on_cuda):
    task = task_of(make)
    assert fused.gradients(task) is None
    assert fused.evaluation(task) == task.evaluate


def test_inputs_that_are_not_float_are_left_to_torch(as_on_cuda):
    data = [(torch.ones(6, 1, 8, 8, dtype=torch.int32), torch.zeros(6, dtype=torch.int64))]
    assert fused.gradients(Task(lambda: nn.Sequential(*block(1, 4), *head(64)), F.cross_entropy, data)) is None


def test_test_images_of_an_odd_size(as_on_cuda):
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (6,), generator=draw)
    data = [(torch.randn(6, 1, 8, 8, generator=draw), labels)]
    make = partial(nn.Sequential, *block(1, 4), *head(64))
    task = Task(make, F.cross_entropy, data, (torch.randn(6, 1, 9, 9, generator=draw), labels))
    x = task.init(0)
    assert fused.evaluation(task)(x) == pytest.approx(task.evaluate(x), rel=1e-3)


def test_only_where_tf32_on_cuda_was_asked_for():
    task = task_of(lambda: nn.Sequential(*block(1, 4), *head(64)))
    assert fused.gradients(task) is None
    assert fused.evaluation(task) == task.evaluate


def test_a_task_with_gradients_of_its_own_keeps_them(as_on_cuda):
    class Own(Task):
        def gradients(self, x, clients, batch):
            return x

        def evaluate(self, x):
            return {"train_loss": 1.0}

    data = [(torch.randn(6, 1, 8, 8), torch.randint(10, (6,)))]
    task = Own(lambda: nn.Sequential(*block(1, 4), *head(64)), F.cross_entropy, data)
    assert fused.gradients(task) is None
    assert fused.evaluation(task)(task.init(0)) == {"train_loss": 1.0}
