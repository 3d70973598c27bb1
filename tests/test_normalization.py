"""fedsum.tasks.group_norm: a network with batch statistics becomes one that clients can train."""

import copy

import pytest
import torch
from torch import nn

from fedsum import FedSUM, InputError, Uniform, simulate
from fedsum.tasks import Task, group_norm


def network():
    torch.manual_seed(0)
    shared = nn.BatchNorm2d(32)
    stages = [nn.Conv2d(3, 32, 3), shared, nn.ReLU(), shared, nn.BatchNorm2d(32, affine=False, eps=0.1)]
    instance = [nn.InstanceNorm2d(32, affine=True, track_running_stats=True), nn.InstanceNorm2d(32)]
    inner = nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(32), nn.Linear(32, 2))
    model = nn.Sequential(*stages, *instance, inner)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d | nn.InstanceNorm2d) and layer.affine:
            nn.init.normal_(layer.weight)
            nn.init.normal_(layer.bias)
    return model


def data(samples=6):
    torch.manual_seed(1)
    return [(torch.randn(samples, 3, 6, 6), torch.arange(samples) % 2) for _ in range(2)]


def test_every_layer_with_batch_statistics_is_replaced():
    model = network()
    model[1].weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    new = group_norm(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())  # a copy
    assert not list(new.buffers())
    assert [name for name, _ in new.named_parameters()] == [name for name, _ in model.named_parameters()]
    for (_, value), (_, old) in zip(new.named_parameters(), model.named_parameters(), strict=True):
        assert torch.equal(value, old)
        assert value.requires_grad == old.requires_grad
        assert value is not old
    assert new[1] is new[3]  # one layer, used twice
    assert (new[1].num_groups, new[1].num_channels, new[4].eps, new[4].weight) == (2, 32, 0.1, None)
    assert [type(layer) for layer in (new[5], new[6], new[7][3])] == [
        nn.InstanceNorm2d,
        nn.InstanceNorm2d,
        nn.GroupNorm,
    ]
    inputs = data()[0][0]
    assert torch.equal(new(inputs), new.eval()(inputs))
    assert not torch.allclose(new(inputs), model.eval()(inputs))
    assert isinstance(group_norm(nn.BatchNorm3d(4)), nn.GroupNorm)
    assert isinstance(group_norm(nn.SyncBatchNorm(4)), nn.GroupNorm)


def test_the_refusal_names_the_way_out_and_the_way_out_works():
    with pytest.raises(InputError, match=r"model.1.running_mean = 'a buffer': .*fedsum.tasks.group_norm\(model\)"):
        Task(network(), nn.functional.cross_entropy, data())
    task = Task(group_norm(network()), nn.functional.cross_entropy, data()).to(torch.device("cpu"), torch.float64)
    x0 = task.init(0)
    clients, batch = torch.tensor([0, 1]), torch.tensor([[0, 1, 2], [6, 7, 8]])
    stacked = task.gradients(x0.expand(2, -1), clients, batch)
    for client in (0, 1):
        one = task.gradient(x0, client, batch[client])
        assert one.abs().sum() > 0
        assert (stacked[client] - one).norm() < 1e-10 * one.norm()


class Block(nn.Module):
    """A residual block as torchvision writes it: ReLU and addition in place, a projection where shapes differ."""

    def __init__(self, channels, out, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.relu, self.downsample = nn.ReLU(inplace=True), None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += identity
        return self.relu(out)


def test_a_resnet_as_torchvision_writes_it_is_trained_by_loop_and_stacked():
    torch.manual_seed(0)
    stem = [nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3)]
    resnet = nn.Sequential(*stem, Block(16, 16), Block(16, 32, stride=2), *head)
    clients = [(torch.randn(8, 3, 16, 16), torch.randint(3, (8,))) for _ in range(4)]
    with pytest.raises(InputError, match=r"model.1.running_mean = 'a buffer'"):
        Task(resnet, nn.functional.cross_entropy, clients)
    task = Task(group_norm(resnet), nn.functional.cross_entropy, clients)
    options = {"rounds": 4, "local_steps": 2, "batch_size": 4, "eta_l": 0.1, "eval_every": 4, "dtype": torch.float64}
    loop, stacked = (
        simulate(task, FedSUM(), Uniform(4, 2), engine=engine, device="cpu", **options)
        for engine in ("loop", "batched")
    )
    assert loop.rows[-1]["train_loss"] < loop.rows[0]["train_loss"]
    assert (loop.x - stacked.x).norm() < 1e-12 * loop.x.norm()


@pytest.mark.parametrize("model", [3, nn.Sequential(nn.LazyBatchNorm2d())])
def test_bad_input_is_refused(model):
    with pytest.raises(InputError, match=r"^model"):
        group_norm(model)
