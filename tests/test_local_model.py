"""The loop's local model and its fast layers give the gradients of torch's layers."""

import nets
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fedsum
from fedsum.engine import cpu_functions, cpu_layers
from fedsum.engine.dropout import dropout_mask
from fedsum.engine.local_model import LocalModel
from fedsum.engine.loop import ClientWork, LoopEngine, mean_gradient
from fedsum.engine.regularised import Regularised
from fedsum.tasks import Task, models

SEED, ROUND, CLIENT = 3, 5, 1
CPU = torch.device("cpu")


def conv(inputs, outputs, kernel=3, **options):
    return nn.Conv2d(inputs, outputs, kernel, **({"padding": 1} | options))


def sequential(*layers, width):
    return lambda: nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, 3))


class Branches(nn.Module):
    """Layers as attributes, two branches, an unused parameter and a Sequential that is not called as a whole."""

    def __init__(self):
        super().__init__()
        self.conv, self.pool, self.flat, self.last = conv(3, 8), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 16, 3)
        self.features = nn.Sequential(conv(8, 8), nn.ReLU(), nn.MaxPool2d(2))
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        maps = self.pool(F.relu(self.conv(x)))
        for layer in self.features[:2]:
            maps = maps + layer(maps)
        return self.last(self.flat(maps))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(192, 192, bias=False)
        self.second, self.last = nn.Linear(192, 192), nn.Linear(192, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        rows = x.flatten(1)[:, None]  # three dimensions
        return self.last(F.relu(self.second(F.relu(self.first(rows))))).squeeze(1)


def hooked():
    """A hook doubles a ReLU's output, so that the pooling after it must not be computed first."""
    module = nn.Sequential(conv(3, 8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 3))
    module[1].register_forward_hook(lambda layer, inputs, outputs: 1 - outputs)
    return module


def frozen():
    module = nn.Sequential(conv(3, 8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 3))
    module[0].requires_grad_(False)
    return module


NETWORKS = {
    "block": sequential(conv(3, 8), nn.ReLU(), nn.MaxPool2d(2), conv(8, 4), nn.ReLU(), nn.MaxPool2d(2), width=16),
    "no padding": sequential(conv(3, 8, padding=0), nn.ReLU(), conv(8, 4, padding=0), nn.ReLU(), width=64),
    "odd maps": sequential(conv(3, 8, 4), nn.ReLU(), nn.MaxPool2d(2), width=8 * 9),
    "stride": sequential(conv(3, 8, stride=2), nn.ReLU(), nn.MaxPool2d(2), width=8 * 4),
    "groups": sequential(conv(3, 6, groups=3, dilation=2), nn.ReLU(), nn.MaxPool2d(2), width=54),
    "same": sequential(conv(3, 8, padding="same"), nn.ReLU(), nn.MaxPool2d(2), width=128),
    "circular": sequential(conv(3, 8, padding_mode="circular"), nn.ReLU(), nn.MaxPool2d(2), width=128),
    "no bias": sequential(conv(3, 8, bias=False), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool2d(2), width=128),
    "other pools": sequential(conv(3, 8), nn.ReLU(), nn.MaxPool2d(3, 1), nn.MaxPool2d((2, 3)), width=8 * 3 * 2),
    "mlp": lambda: models.mlp(192, [20, 30], 3),
    "resnet": lambda: models.resnet18(3, width=4),
    "branches": Branches,
    "tied": Tied,
    "hooked": hooked,
    "frozen": frozen,
}


def task_of(make, dtype=torch.float64, *, integers=False, weights=None, loss=F.cross_entropy):
    draw = torch.Generator().manual_seed(0)
    data = []
    for _ in range(3):
        inputs = torch.randn(20, 3, 8, 8, generator=draw)
        data.append((inputs.round() if integers else inputs, torch.randint(3, (20,), generator=draw)))
    return Task(make, loss, data, weights=weights).to(CPU, dtype)


def both_gradients(task, client=CLIENT):
    x, batch = task.init(SEED), task.batches(SEED, ROUND, client, 1, 16)[0]
    local = LocalModel.of(task)
    assert local is not None
    return local.gradient(x, client, batch), task.gradient(x, client, batch)


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 1e-5)], ids=["64", "32"])
def test_gradients_are_torchs(make, dtype, tolerance):
    g, expected = both_gradients(task_of(make, dtype))
    assert (g - expected).norm() <= tolerance * expected.norm()
    assert expected.norm() > 1e-3


def test_gradients_are_torchs_where_pixels_are_equal():
    """Images and filters of few integers: many windows have two maxima, of which the first one has the gradient."""

    def make():
        module = NETWORKS["block"]()
        with torch.no_grad():
            module[0].weight.copy_(torch.randint(-1, 2, module[0].weight.shape))
            module[0].bias.zero_()
        return module

    g, expected = both_gradients(task_of(make, integers=True))
    torch.testing.assert_close(g, expected, rtol=0, atol=1e-13)


def test_client_weights_scale_the_gradient():
    g, expected = both_gradients(task_of(NETWORKS["block"], weights=[0.1, 0.2, 0.7]), client=2)
    torch.testing.assert_close(g, expected, rtol=1e-12, atol=1e-13)


def test_layers_are_replaced():
    """If they were not, every comparison with torch's layers would pass."""
    module = cpu_layers.with_fast_layers(models.mnist_cnn())
    kinds = [type(layer).__name__ for layer in module]
    linear = "_Linear" if cpu_functions.has_fast_products() else "Linear"
    assert kinds == [
        *("_Conv2d", "ReLU", "_MaxPool2x2", "_Conv2d", "_Dropout", "ReLU", "_MaxPool2x2"),
        *("_Flatten", linear, "ReLU", "_Dropout", linear),
    ]
    assert [type(step).__name__ for step in module.steps[:3]] == ["_Block", "_Block", "_Flatten"]
    assert type(cpu_layers.with_fast_layers(nn.Sequential(nn.Dropout(1.0)))[0]) is nn.Dropout


@pytest.mark.parametrize("correction", [False, True])
@pytest.mark.parametrize(("pull", "decay"), [(0.0, 1.0), (0.1, 1.0), (0.0, 0.5)])
@pytest.mark.parametrize("clip", [None, 0.1])
def test_local_steps_are_the_references(correction, pull, decay, clip):
    task = task_of(NETWORKS["block"])
    x = task.init(SEED)
    plan = fedsum.LocalPlan(x, 0.3, 0.1 * torch.ones_like(x) if correction else None, pull, decay)
    task = task if clip is None else Regularised(task, clip, 0.01)
    batches = task.batches(SEED, ROUND, CLIENT, 4, 8)
    expected = mean_gradient(lambda x, batch: task.gradient(x, CLIENT, batch), plan, batches)
    G = ClientWork(task, SEED, 8)(plan, CLIENT, ROUND, 4)
    torch.testing.assert_close(G, expected, rtol=1e-11, atol=1e-12)


class OfMasks(nn.Module):
    """Dropout as torch's layers would compute it, with the masks of the fast layers."""

    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        return x * dropout_mask(x, self.p)


@pytest.mark.parametrize("channels_last", [True, False])
def test_dropout_in_a_block_is_the_product_with_its_mask(channels_last):
    def make(dropout):
        block = [conv(3, 8), dropout(0.2), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*block, nn.Flatten(), nn.Linear(128, 5), nn.ReLU(), dropout(0.5), nn.Linear(5, 3))

    fast, plain = task_of(lambda: make(nn.Dropout)), task_of(lambda: make(OfMasks))
    fast._use_channels_last = plain._use_channels_last = channels_last
    x, batch = fast.init(SEED), fast.batches(SEED, ROUND, CLIENT, 1, 16)[0]
    local = LocalModel.of(fast)
    torch.manual_seed(SEED)
    g = local.gradient(x, CLIENT, batch)
    torch.manual_seed(SEED)
    torch.testing.assert_close(g, plain.gradient(x, CLIENT, batch), rtol=0, atol=1e-13)


@pytest.mark.parametrize("p", [0.01, 0.2, 0.5, 0.99])
def test_masks_drop_their_share_and_keep_the_mean(p):
    torch.manual_seed(SEED)
    mask = dropout_mask(torch.empty(10, 10, 100, 101).contiguous(memory_format=torch.channels_last), p)
    count, deviation = mask.numel(), (p * (1 - p) / mask.numel()) ** 0.5
    assert abs((mask == 0).double().mean() - p) < 5 * deviation + 2**-16
    assert abs(mask.double().mean() - 1) < 5 * deviation / (1 - p)
    assert mask.unique().tolist() == [0.0, pytest.approx(1 / (1 - p), rel=1e-3)]
    # Neighbours, and values four places apart, which come from the same bits of two words, are independent.
    dropped = (mask == 0).double().permute(0, 2, 3, 1).reshape(-1) - p
    for lag in (1, 2, 3, 4):
        correlation = (dropped[lag:] * dropped[:-lag]).mean() / (p * (1 - p))
        assert abs(correlation) < 5 / count**0.5


def test_masks_are_keyed_and_drawn_anew():
    task = Task(lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(64, 2)), F.cross_entropy, [constant_data()] * 3)
    plan = fedsum.LocalPlan(task.init(0), 0.0)

    def G(seed, t, client, K):
        return ClientWork(task, seed, 1)(plan, client, t, K)

    first = G(SEED, ROUND, CLIENT, 1)
    assert torch.equal(first, G(SEED, ROUND, CLIENT, 1))
    assert not torch.equal(first, G(SEED, ROUND, CLIENT, 2))  # the second step has another mask
    for other in ((SEED + 1, ROUND, CLIENT), (SEED, ROUND + 1, CLIENT), (SEED, ROUND, CLIENT + 1)):
        assert not torch.equal(first, G(*other, 1))


def constant_data():
    return torch.ones(4, 64), torch.ones(4, dtype=torch.long)


def test_dropout_does_not_depend_on_the_other_clients():
    task = nets.task(dropout=0.5)
    plan = fedsum.LocalPlan(task.init(0), 0.1)
    engine = LoopEngine(task, 0, 3, 8)
    together = engine(plan, np.array([2, 4, 6]), 1)
    assert torch.equal(engine(plan, np.array([6]), 1)[0], together[2])


class TwiceDifferentiated(nn.Module):
    """Its output is a gradient, so that its gradient is a second derivative."""

    def __init__(self):
        super().__init__()
        self.net = NETWORKS["block"]()

    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.net(x).square().sum(), x, create_graph=True)
        return slope.flatten(1)[:, :3]


def test_a_module_that_differentiates_twice_is_trained_by_torchs_layers():
    task = task_of(TwiceDifferentiated)
    assert LocalModel.of(task) is None
    plan = fedsum.LocalPlan(task.init(0), 0.1)
    expected = mean_gradient(lambda x, batch: task.gradient(x, 0, batch), plan, task.batches(0, 0, 0, 2, 8))
    assert torch.equal(LoopEngine(task, 0, 2, 8)(plan, np.array([0]), 0)[0], expected)


def test_a_pooling_that_is_differentiated_twice_is_refused():
    """Its masks are overwritten by the first gradient."""
    images = torch.randn(1, 2, 4, 4).contiguous(memory_format=torch.channels_last).requires_grad_()
    pooled = cpu_functions.MaxPool2x2.apply(images).sum()
    pooled.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="differentiated twice"):
        pooled.backward()


def test_a_loss_with_parameters_gets_no_gradient():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, outputs, targets):
            return self.scale * F.cross_entropy(outputs, targets)

    loss = Scaled()
    both_gradients(task_of(NETWORKS["block"], loss=loss))
    assert loss.scale.grad is None


def test_tasks_with_their_own_gradient_have_no_local_model():
    class Own(Task):
        def gradient(self, x, client, batch):
            return torch.ones_like(x)

    draw = torch.Generator().manual_seed(0)
    task = Own(
        lambda: nn.Linear(2, 2), F.cross_entropy, [(torch.randn(4, 2, generator=draw), torch.tensor([0, 1, 0, 1]))]
    )
    assert LocalModel.of(task) is None
    G = LoopEngine(task, 0, 2, 2)(fedsum.LocalPlan(task.init(0), 0.1), np.array([0]), 0)
    assert torch.equal(G[0], torch.ones(task.d))


class Words(nn.Module):
    """An embedding that is read in two places, with padding, and one that is also the last layer's weight."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(30, 6, padding_idx=0), nn.Embedding(4, 6)
        self.last = nn.Linear(6, 4, bias=False)
        self.last.weight = self.places.weight

    def forward(self, tokens):
        rows = self.words(tokens) + self.words(tokens.flip(1)) ** 2
        return self.last((rows + self.places(torch.arange(3))).mean(1))


def tokens_task(kind=Task):
    draw = torch.Generator().manual_seed(0)
    data = [(torch.randint(30, (20, 3), generator=draw), torch.randint(4, (20,), generator=draw)) for _ in range(3)]
    return kind(Words, F.cross_entropy, data).to(CPU, torch.float64)


def test_the_gradient_of_an_embedding_is_torchs():
    g, expected = both_gradients(tokens_task())
    torch.testing.assert_close(g, expected, rtol=1e-12, atol=1e-13)
    assert type(cpu_layers.with_fast_layers(nn.Embedding(3, 2))).__name__ == "_Embedding"
    for options in ({"max_norm": 1.0}, {"scale_grad_by_freq": True}):
        assert type(cpu_layers.with_fast_layers(nn.Embedding(3, 2, **options))) is nn.Embedding


def test_the_gradient_of_an_embedding_adds_to_the_rows_that_are_read():
    """A second gradient is added in place, and rows that no sample reads stay 0."""
    local = LocalModel.of(tokens_task())
    total = local._total
    local.gradient(local._x.clone(), CLIENT, torch.tensor([0]))
    once = total.clone()
    local._add_gradient(CLIENT, torch.tensor([0]))
    torch.testing.assert_close(total, 2 * once, rtol=1e-12, atol=0)
    assert local._parameters[0].grad.data_ptr() == total.data_ptr()
    assert 0 < (once[: 30 * 6].view(30, 6).abs().sum(1) > 0).sum() <= 3


def test_a_task_with_its_own_samples_is_trained_on_them():
    class Shifted(Task):
        def samples(self, batch):
            tokens, targets = super().samples(batch)
            return (tokens + 1) % 30, targets

    task = tokens_task(Shifted)
    g, expected = both_gradients(task)
    torch.testing.assert_close(g, expected, rtol=1e-12, atol=1e-13)
    assert not torch.allclose(g, both_gradients(tokens_task())[0])
    task.partition.parts[0] = task.partition.parts[0][:0]  # as on the machine of another client
    assert LocalModel.of(task) is not None


def test_sizes_that_are_not_images():
    """Convolutions of one image without a batch, and products of no rows, are left to torch."""
    module = cpu_layers.with_fast_layers(nn.Sequential(conv(3, 4), nn.Linear(8, 2)))
    image = torch.randn(3, 8, 8)
    torch.testing.assert_close(module[0](image), F.conv2d(image, module[0].weight, module[0].bias, padding=1))
    assert module[1](torch.empty(0, 8)).shape == (0, 2)
