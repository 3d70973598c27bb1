"""Modules of many kinds have torch's gradients in the loop on a CPU: by the fast layers, or without them."""

import gc
import weakref
from functools import partial

import numpy as np
import pytest
import torch
from test_local_model import CLIENT, NETWORKS, ROUND, SEED, conv, task_of
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import fedsum
from fedsum.engine import cpu_functions, cpu_layers
from fedsum.engine.local_model import LocalModel
from fedsum.engine.loop import ClientWork, LoopEngine, mean_gradient
from fedsum.tasks import Task


def block(inputs=3, outputs=8, *more):
    return conv(inputs, outputs), *more, nn.ReLU(), nn.MaxPool2d(2)


def classifier(*layers, width=128):
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, 3))


class Shared(nn.Module):
    """One block in two Sequentials, one of them called twice."""

    def __init__(self):
        super().__init__()
        self.first, again = conv(3, 3), block(3, 3)
        self.one, self.two = nn.Sequential(*again), nn.Sequential(nn.Tanh(), *again)
        self.last = nn.Linear(3 * 4, 3)

    def forward(self, x):
        return self.last(self.two(self.one(self.first(x)) + self.one(x)).flatten(1))


class Checkpointed(nn.Module):
    def __init__(self, dropout, checkpoint=checkpoint):
        super().__init__()
        self.first, self.last, self.checkpoint = conv(3, 3), nn.Linear(64, 3), checkpoint
        self.inner = nn.Sequential(*block(3, 4, dropout()), nn.Flatten(), nn.Linear(64, 64), nn.Tanh(), dropout())

    def forward(self, x):
        return self.last(self.checkpoint(self.inner, self.first(x), use_reentrant=False))


class InPlace(nn.Module):
    """In-place operations on the outputs and on the inputs of fast layers."""

    def __init__(self):
        super().__init__()
        self.features, self.flat, self.hidden = nn.Sequential(*block()), nn.Flatten(), nn.Linear(128, 128)
        self.last = nn.Linear(128, 3)

    def forward(self, x):
        maps = self.features(x)
        maps *= 2
        rows = self.flat(maps)
        rows.tanh_()
        hidden = self.hidden(rows.sigmoid())
        hidden += 1
        return self.last(hidden.relu_())


class Mutable(nn.Module):
    """Changes its Sequential, adds a hook and turns off a dropout in `forward`."""

    def __init__(self):
        super().__init__()
        self.features, self.hooked = nn.Sequential(*block(), nn.Tanh()), nn.Sequential(*block())
        self.dropped, self.last = nn.Sequential(*block(3, 8, nn.Dropout(0.5))), nn.Linear(128, 3)

    def forward(self, x):
        self.features[3] = nn.Sigmoid()
        self.dropped.eval()
        hook = self.hooked[1].register_forward_hook(lambda layer, inputs, outputs: 1 - outputs)
        maps = self.features(x) + self.hooked(x) + self.dropped(x)
        hook.remove()
        return self.last(maps.flatten(1))


class LooksAtClasses(nn.Module):
    """Its result depends on the exact classes of its layers."""

    def __init__(self):
        super().__init__()
        self.features, self.last = nn.Sequential(*block()), nn.Linear(128, 3)

    def forward(self, x):
        for layer in self.features:
            x = layer(x) * (2 if type(layer) is nn.Conv2d else 1)
        return self.last(x.flatten(1))


class Clamped(nn.Module):
    """Changes a parameter in `forward`, in place."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(192, 3)

    def forward(self, x):
        self.last.weight.data.clamp_(-0.05, 0.05)
        return self.last(x.flatten(1))


class OtherDtype(nn.Module):
    """Computes its last layer in another dtype."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(192, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = self.first(x.flatten(1)).float()
        return F.linear(hidden, self.last.weight.float(), self.last.bias.float()).to(x.dtype)


class OwnConv(nn.Conv2d):
    def forward(self, x):
        return 2 * super().forward(x).tanh()


def own_forward():
    """Layers whose `forward` is replaced on the object."""
    module = classifier(*block())
    module[1].forward, module[2].forward = torch.tanh, partial(F.avg_pool2d, kernel_size=2)
    return module


def parametrized():
    module = classifier(*block(), *block(8, 8), width=32)
    parametrizations.weight_norm(module[0])
    parametrizations.weight_norm(module[-1])
    return module


def buffered():
    module = classifier(*block())
    module.register_buffer("offset", torch.ones(3))
    module.register_forward_hook(lambda layer, inputs, outputs: outputs * layer.offset)
    return module


def only_trained(*names):
    def make():
        module = classifier(*block(), *block(8, 8), width=32)
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(name in names)
        return module

    return make


def full_hooks():
    module = classifier(*block())
    module[2].register_full_backward_hook(lambda layer, before, after: (before[0] * 2,))
    module[1].register_forward_pre_hook(lambda layer, inputs: (inputs[0] + 0.1,))
    return module


MODULES = {
    "shared": Shared,
    "in place": InPlace,
    "in-place relu": lambda: classifier(conv(3, 8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.ReLU(inplace=True)),
    "mutable": Mutable,
    "classes": LooksAtClasses,
    "own convolution": lambda: classifier(OwnConv(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    "own forward": own_forward,
    "parametrized": parametrized,
    "buffered": buffered,
    "biases only": only_trained("0.bias", "3.bias"),
    "one weight only": only_trained("3.weight"),
    "first layer only": only_trained("0.weight"),
    "full hooks": full_hooks,
    "clamped": Clamped,
    "other dtype": OtherDtype,
}


def steps_in_both_ways(task, K=4, step=0.3):
    plan = fedsum.LocalPlan(task.init(SEED), step)
    batches = task.batches(SEED, ROUND, CLIENT, K, 8)
    expected = mean_gradient(lambda x, batch: task.gradient(x, CLIENT, batch), plan, batches)
    return ClientWork(task, SEED, 8)(plan, CLIENT, ROUND, K), expected


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_local_steps_are_torchs(make):
    G, expected = steps_in_both_ways(task_of(make))
    assert (G - expected).norm() <= 1e-12 * expected.norm()
    assert expected.norm() > 1e-3


def test_which_modules_have_a_local_model():
    """The others fall back, so that the comparison above says nothing about fast layers."""
    without = {name for name, make in MODULES.items() if LocalModel.of(task_of(make)) is None}
    assert without == {"in place", "in-place relu", "classes", "clamped"}


@pytest.mark.parametrize("dropout", [nn.Identity, lambda: nn.Dropout(0.4)])
def test_checkpointing_repeats_the_masks(dropout):
    """The layers in the checkpoint are computed again in the backward pass."""
    task, plain = (
        task_of(lambda: Checkpointed(dropout)),
        task_of(lambda: Checkpointed(dropout, lambda inner, x, use_reentrant: inner(x))),
    )
    x, batch = task.init(SEED), task.batches(SEED, ROUND, CLIENT, 1, 16)[0]
    gradients = []
    for local in map(LocalModel.of, (task, plain)):
        torch.manual_seed(SEED)
        gradients.append(local.gradient(x, CLIENT, batch).clone())
    g, expected = gradients
    assert (g - expected).norm() <= 1e-12 * expected.norm()


def test_autocast_keeps_its_precision():
    class Autocast(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = classifier(*block())

        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                return self.net(x).float()

    task = task_of(Autocast, torch.float32)
    assert LocalModel.of(task) is not None
    G, expected = steps_in_both_ways(task, K=1)
    exact, _ = steps_in_both_ways(task_of(lambda: Autocast().net, torch.float32), K=1)
    assert (G - expected).norm() < 1e-2 * (exact - expected).norm()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_divergent_model_is_not_hidden(value):
    task = task_of(NETWORKS["block"])
    x = task.init(SEED)
    x[0] = value
    batch = task.batches(SEED, ROUND, CLIENT, 1, 16)[0]
    g, expected = LocalModel.of(task).gradient(x, CLIENT, batch), task.gradient(x, CLIENT, batch)
    assert expected.isnan().any()
    assert g.isnan()[expected.isnan()].all()


def test_a_nan_of_one_pixel_is_pooled():
    images = torch.randn(1, 2, 4, 4).contiguous(memory_format=torch.channels_last)
    images[0, 1, 2, 3] = float("nan")
    pooled = cpu_functions.MaxPool2x2.apply(images)
    torch.testing.assert_close(pooled, F.max_pool2d(images, 2), equal_nan=True)


def test_bf16_has_no_float32_layers():
    task = task_of(NETWORKS["block"], torch.float32)
    assert LocalModel.of(task) is not None
    reduced = task.computing_in(torch.bfloat16)
    assert LocalModel.of(reduced) is None
    plan, clients = fedsum.LocalPlan(task.init(0), 0.1), np.array([1])
    loop = LoopEngine(reduced, 0, 2, 8)(plan, clients, 0)
    expected = mean_gradient(lambda x, batch: reduced.gradient(x, 1, batch), plan, task.batches(0, 0, 1, 2, 8))
    assert torch.equal(loop[0], expected)


@pytest.mark.parametrize("make", [NETWORKS["block"], lambda: classifier(conv(3, 8), nn.Tanh(), nn.MaxPool2d(2))])
def test_feature_maps_are_freed_without_the_garbage_collector(make, monkeypatch):
    pools = []

    class Watched(cpu_functions._Pooling):
        def __init__(self, images):
            super().__init__(images)
            pools.append(weakref.ref(self))

    monkeypatch.setattr(cpu_functions, "_Pooling", Watched)
    task = task_of(make)
    local, x, batches = LocalModel.of(task), task.init(SEED), task.batches(SEED, ROUND, CLIENT, 3, 8)
    pools.clear()
    gc.collect()
    gc.disable()
    try:
        for batch in batches:
            local.gradient(x, CLIENT, batch)
            assert pools
            assert not any(pool() for pool in pools)
    finally:
        gc.enable()


def test_hooks_added_later_are_called():
    module = cpu_layers.with_fast_layers(nn.Sequential(*block()))
    images = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    called = []
    module(images)
    module[1].register_forward_hook(lambda *arguments: called.append(arguments))
    module(images)
    assert len(called) == 1


def test_a_task_of_one_sample():
    data = [(torch.randn(1, 4), torch.tensor([1]))]
    task = Task(lambda: nn.Linear(4, 2), F.cross_entropy, data).to(torch.device("cpu"), torch.float64)
    assert LocalModel.of(task) is not None
