"""tasks.vision(): the paper's settings by default, others by name."""

import dataclasses
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import fedsum
from fedsum import InputError
from fedsum.tasks import Augment, Partition, Task, data, vision

digits = data.load("digits")


@pytest.fixture
def pretend(monkeypatch):
    """Makes `load` return a few random images in the shape of any set, and digits with 30 writers."""

    def load(name):
        if name == "digits":
            return dataclasses.replace(digits, columns={"writer": torch.arange(1500) % 30})
        source = data.SOURCES[name]
        draw = np.random.default_rng(0)
        inputs = torch.from_numpy(draw.integers(0, 256, (600, *source.shape), dtype=np.uint8))
        targets = torch.arange(600) % source.classes
        columns = {column: torch.arange(600) % 20 for column in source.columns}
        known = source.mean, source.std, source.classes, columns
        return data.Images(name, inputs, targets, inputs[:50], targets[:50], *known)

    monkeypatch.setattr(data, "load", load)


def test_digits_are_learnt():
    task = vision("digits", clients=10, alpha=1.0)
    assert isinstance(task, Task)
    history = fedsum.simulate(
        task,
        fedsum.FedSUM(),
        fedsum.Uniform(10, 5),
        rounds=40,
        local_steps=5,
        eta_l=0.3,
        batch_size=32,
        eval_every=40,
    )
    accuracy = history.metrics["test_accuracy"]
    assert accuracy.iloc[0] < 0.3
    assert accuracy.iloc[-1] > 0.85


@pytest.mark.parametrize(
    ("name", "d"),
    [
        ("mnist", 51_480),
        ("fashion_mnist", 51_480),
        ("svhn", 273_706),
        ("cifar10", 551_786),
        ("cifar100", 551_786 + 90 * 65),
        ("digits", 64 * 64 + 64 + 640 + 10),
    ],
)
def test_each_set_has_its_network_and_a_hundred_clients(pretend, name, d):
    task = vision(name, refill=True)
    assert (task.n, task.d) == (100, d)
    images = data.load(name)
    batch = task.batches(seed=0, t=0, client=3, K=1, batch_size=4)[0]
    inputs, targets = task.samples(batch)
    assert torch.equal(targets, images.train_targets[batch])
    mean, std = (torch.tensor(values)[:, None, None] for values in (images.mean, images.std))
    assert torch.allclose(inputs, (images.train_inputs[batch] / 255 - mean) / std, atol=1e-5)
    assert task.gradient(task.init(seed=0), 3, batch).isfinite().all()


@pytest.mark.parametrize(
    ("model", "d"),
    [
        ("logistic", 7850),
        ("mlp", 784 * 64 + 64 + 650),
        ("cnn", 51_480),
        ("resnet18", 11_173_962 - 2 * 9 * 64),
        (lambda: nn.Linear(28, 3), 87),
    ],
)
def test_other_networks(pretend, model, d):
    assert vision("mnist", partition="iid", model=model).d == d


def test_resnet18_draws_no_random_numbers(pretend):
    task = vision("cifar100", clients=5, model="resnet18", partition="iid")
    assert (task.n, task.d, task.has_dropout) == (5, 11_173_962 + 90 * 513, False)


def test_kaiming_weights_are_an_option():
    default, kaiming = (vision("digits", partition="iid", init=init) for init in ("default", "kaiming"))
    layers = [[p.detach() for p in task.model(task.init(seed=3)).parameters()] for task in (default, kaiming)]
    assert float(layers[0][0].abs().max()) <= 1 / 8
    assert float(layers[1][0].std()) == pytest.approx((2 / 64) ** 0.5, rel=0.05)
    assert layers[0][1].any()
    assert not layers[1][1].any()
    assert torch.equal(kaiming.init(seed=3), kaiming.init(seed=3))
    assert not torch.equal(kaiming.init(seed=3), kaiming.init(seed=4))


def test_partitions(pretend):
    def sizes_and_labels(**options):
        partition = vision("digits", **options).partition
        return partition.sizes, (partition.counts > 0).sum(1)

    sizes, labels = sizes_and_labels(clients=10)
    assert labels.mean() < 8
    sizes, _ = sizes_and_labels(clients=10, partition="class_dirichlet", refill=True)
    assert sizes.std() > 60
    sizes, labels = sizes_and_labels(clients=10, partition="iid")
    assert (sizes == 150).all()
    assert (labels == 10).all()
    _, labels = sizes_and_labels(clients=50, partition="shards", shards_per_client=1)
    assert labels.max() <= 2
    sizes, _ = sizes_and_labels(partition="writer")
    assert sizes.tolist() == [50] * 30
    first, again, other = (vision("digits", clients=10, seed=seed).partition.counts for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("augment", "expected"), [(None, None), ("crop", Augment(4)), ("crop+flip", Augment(4, flip=True))]
)
def test_augmentation(augment, expected):
    assert vision("digits", partition="iid", augment=augment).augment == expected


def test_weights_by_samples():
    task = vision("digits", clients=10, weights="samples")
    assert task.scale.numpy() == pytest.approx(task.partition.sizes / 150, rel=1e-5)


def test_a_task_travels_to_other_processes():
    task = vision("digits", partition="iid", init="kaiming", augment="crop")
    there = pickle.loads(pickle.dumps(task))
    assert torch.equal(there.init(seed=1), task.init(seed=1))
    assert torch.equal(there.batches(0, 1, 2, 3, 4), task.batches(0, 1, 2, 3, 4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "digit"}, "name = 'digit': did you mean 'digits'?"),
        ({"clients": 0}, "n = 0"),
        ({"clients": 400, "partition": "class_dirichlet"}, "use a larger alpha, fewer clients or refill=True"),
        ({"partition": "dirichelet"}, "partition = 'dirichelet': did you mean 'dirichlet'?"),
        ({"partition": "coarse_label"}, "known: class_dirichlet, dirichlet, iid, shards"),
        ({"model": "cnn"}, "model = 'cnn': known: logistic, mlp, resnet18"),
        ({"model": nn.Linear(64, 10)}, "model = 'Linear': a function that makes a module"),
        ({"model": 3}, "model = 3"),
        ({"init": "xavier"}, "init = 'xavier': known: default, kaiming"),
        ({"augment": "flip"}, "augment = 'flip'"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_bad_input_is_refused(options, message):
    with pytest.raises(InputError) as caught:
        vision(**({"name": "digits"} | options))
    assert message in str(caught.value)


def test_natural_clients_bring_their_number(pretend):
    assert vision("cifar100", partition="coarse_label").n == 20
    with pytest.raises(InputError) as caught:
        vision("cifar100", partition="coarse_label", clients=20)
    assert str(caught.value) == "clients = 20: leave it out: partition='coarse_label' makes one client per value"


def test_a_partition_and_an_augmentation_of_ones_own():
    split, augment = Partition([np.arange(0, 700), np.arange(700, 1500)]), Augment(1, per_batch=True)
    task = vision("digits", partition=split, augment=augment)
    assert (task.n, task.partition, task.augment) == (2, split, augment)
    assert task.source is None  # a file cannot say it
    assert vision("digits", partition=split, clients=2).n == 2
    with pytest.raises(InputError, match="clients = 3: leave it out: the partition has 2 clients"):
        vision("digits", partition=split, clients=3)
    with pytest.raises(InputError, match="augment = 4"):
        vision("digits", augment=4)
