"""tasks.Task: batches, gradients, evaluation and refused input."""

import subprocess
import sys
from functools import partial
from itertools import pairwise

import deep_nets
import nets
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import fedsum
from fedsum import InputError
from fedsum.tasks import Augment, ClientData, Partition, Quadratic, Task, network_of
from fedsum.tasks.models import mnist_cnn

DOUBLE = torch.device("cpu"), torch.float64


@given(st.integers(0, 100), st.integers(0, nets.N - 1), st.integers(1, 6), st.integers(1, 30))
def test_batches_are_full_and_each_shuffle_uses_every_sample_once(t, client, K, batch_size):
    task = nets.task()
    batches = task.batches(3, t, client, K, batch_size)
    assert batches.shape == (K, batch_size)
    own, drawn = sorted(task.partition.parts[client]), batches.reshape(-1).tolist()
    for start in range(0, len(drawn), len(own)):
        shuffle = drawn[start : start + len(own)]
        assert len(set(shuffle)) == len(shuffle)
        assert set(shuffle) <= set(own)
        if len(shuffle) == len(own):
            assert sorted(shuffle) == own
    assert torch.equal(batches, task.batches(3, t, client, K, batch_size))


def test_batches_differ_by_seed_round_and_client():
    task = nets.task()
    drawn = {
        tuple(task.batches(seed, t, client, 2, 8).reshape(-1).tolist())
        for seed in range(3)
        for t in range(3)
        for client in range(3)
    }
    assert len(drawn) == 27


def test_a_client_batches_do_not_depend_on_the_algorithm():
    seen = []

    class Watching(Task):
        def batches(self, *key):
            seen.append(key)
            return super().batches(*key)

    task = nets.task()
    watching = Watching(nets.convolutional, task.loss, nets.images())
    for algorithm in (fedsum.FedAvg(), fedsum.FedSUMCR()):
        fedsum.simulate(watching, algorithm, fedsum.Cyclic(nets.N, 2), rounds=2, local_steps=3, eta_l=0.1)
    assert len(seen) == 2 * 4
    assert seen[:4] == seen[4:]


def test_gradient_is_autograds_and_stacked_gradients_agree():
    task = nets.task().to(*DOUBLE)
    x = torch.stack([task.init(seed) for seed in (1, 2)])
    batch = torch.stack([task.batches(0, 0, client, 1, 5)[0] for client in (4, 7)])
    stacked = task.gradients(x, torch.tensor([4, 7]), batch)
    for row, client in enumerate((4, 7)):
        module = task.model(x[row]).train()
        task.loss(module(task.inputs[batch[row]].double()), task.targets[batch[row]]).backward()
        by_hand = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
        assert torch.allclose(task.gradient(x[row], client, batch[row]), by_hand, atol=1e-14)
        assert torch.allclose(stacked[row], by_hand, atol=1e-14)


def test_evaluation_is_the_true_mean_over_all_samples(monkeypatch):
    task = nets.task(gradient_norm=True).to(*DOUBLE)
    x = task.init(0)
    module = task.model(x)
    outputs = module(task.inputs.double())
    loss = nn.functional.cross_entropy(outputs, task.targets)
    test_outputs = module(task.test_data[0].double())
    for chunk in (10**9, 7 * 36 * 8 * 16):  # all at once, and seven at a time
        monkeypatch.setitem(fedsum.tasks.samples._EVALUATION_BYTES, "cpu", chunk)
        found = task.evaluate(x)
        assert found["train_loss"] == pytest.approx(loss.item(), rel=1e-12)
        assert found["test_accuracy"] == (test_outputs.argmax(1) == task.test_data[1]).double().mean()
        per_client = [nn.functional.cross_entropy(outputs[part], task.targets[part]) for part in task.partition.parts]
        mean = torch.stack(per_client).mean()
        g = torch.autograd.grad(mean, module.parameters(), retain_graph=True)
        norm = sum(float(v.square().sum()) for v in g)
        assert found["gradient_norm_sq"] == pytest.approx(norm, rel=1e-10)


def test_dropout_is_off_in_evaluation_and_on_in_training():
    task = nets.task(dropout=0.5)
    x, batch = task.init(0), task.batches(0, 0, 0, 1, 8)[0]
    assert task.evaluate(x) == task.evaluate(x)
    assert not torch.equal(task.gradient(x, 0, batch), task.gradient(x, 0, batch))
    assert task.has_dropout
    assert not nets.task().has_dropout


def test_client_weights_scale_gradients_by_n_w():
    plain, weighted = nets.task(), nets.task(weights="samples")
    x, batch = plain.init(0), plain.batches(0, 0, 2, 1, 8)[0]
    sizes = plain.partition.sizes
    factor = nets.N * sizes[2] / sizes.sum()
    assert torch.allclose(weighted.gradient(x, 2, batch), factor * plain.gradient(x, 2, batch))
    clients, batches = torch.tensor([2]), batch[None]
    assert torch.allclose(
        weighted.gradients(x[None], clients, batches), factor * plain.gradients(x[None], clients, batches)
    )


def test_a_given_module_starts_where_it_is_and_a_function_where_the_seed_says():
    module = nn.Linear(4, 2)
    data = [(torch.randn(5, 4), torch.randint(2, (5,))) for _ in range(3)]
    given = Task(module, nn.functional.cross_entropy, data)
    assert torch.equal(given.init(0), given.init(1))
    assert torch.equal(given.init(0), torch.cat([module.weight.detach().reshape(-1), module.bias.detach()]))
    made = Task(lambda: nn.Linear(4, 2), nn.functional.cross_entropy, data)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    assert torch.equal(made.init(3), made.init(3))
    assert not torch.equal(made.init(3), made.init(4))
    assert torch.equal(torch.get_rng_state(), state)  # the user's generator is unchanged


def test_pairs_become_one_set_with_its_partition():
    data = [(torch.full((size, 2), float(i)), torch.full((size,), i)) for i, size in enumerate((2, 3, 1))]
    task = Task(lambda: nn.Linear(2, 3), nn.functional.cross_entropy, data)
    assert task.partition.sizes.tolist() == [2, 3, 1]
    assert task.partition.counts.tolist() == [[2, 0, 0], [0, 3, 0], [0, 0, 1]]
    inputs, targets = task.samples(task.batches(0, 0, 1, 2, 2))
    assert inputs.shape == (2, 2, 2)
    assert targets.unique().tolist() == [1]


def test_regression_targets_need_no_labels():
    data = [(torch.randn(4, 2), torch.randn(4, 1)) for _ in range(3)]
    task = Task(lambda: nn.Linear(2, 1), nn.functional.mse_loss, data)
    history = fedsum.simulate(task, fedsum.FedSUM(), fedsum.Uniform(3, 2), rounds=30, local_steps=2, eta_l=0.1)
    assert history.rows[-1]["train_loss"] < history.rows[0]["train_loss"]


def test_augmented_batches_carry_their_codes():
    task = nets.task(augment=Augment(2, flip=True))
    batch = task.batches(0, 0, 1, 2, 6)
    assert batch.shape == (2, 6, 4)
    plain, _ = nets.task().samples(batch[..., 0])
    changed, _ = task.samples(batch)
    assert changed.shape == plain.shape
    assert not torch.equal(changed, plain)
    assert torch.equal(batch[..., 0], nets.task().batches(0, 0, 1, 2, 6))


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return x + torch.rand_like(x) * self.weight


class Counting(nn.Module):
    """A user's own normalisation layer with running statistics."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += len(x)
        return self.layer(x) / self.seen


PAIR = (torch.randn(4, 2), torch.randint(2, (4,)))


def test_a_layer_of_unknown_make_may_draw_noise():
    assert Task(Custom(), nn.functional.cross_entropy, [PAIR]).has_dropout


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda loss: Task(nn.Sequential(nn.BatchNorm1d(2)), loss, [PAIR]), "model.0.running_mean = 'a buffer'"),
        (lambda loss: Task(Counting(), loss, [PAIR]), "model.seen = 'a buffer': changes in training"),
        (lambda loss: Task(nn.Linear(2, 2), loss, [PAIR], weights=["a"]), "weights = ['a']"),
        (lambda loss: Task(nn.Linear(2, 2), loss, [PAIR, (torch.ones(2, 3), PAIR[1][:2])]), "shape = (3,): (2,)"),
        (lambda loss: Task(nn.Linear(2, 2), loss, [PAIR], (PAIR[0], PAIR[1][:2])), "test_data"),
        (lambda loss: Task(nn.Linear(2, 2), loss, [PAIR], (PAIR[0][:0], PAIR[1][:0])), "test_data"),
        (lambda loss: Task(nn.Linear(2, 2), loss, ClientData(*PAIR, Partition([[0, 9]]))), "sample = 9: samples from"),
        (lambda loss: Task(nn.Linear(2, 2), loss, ClientData(PAIR[0], PAIR[1][:3], Partition([[0]]))), "targets = 3"),
        (lambda loss: Task(nn.Linear(2, 2).requires_grad_(False), loss, [PAIR]), "parameters to train"),
        (lambda loss: Task(nn.ReLU(), loss, [PAIR]), "a module with parameters"),
        (lambda loss: Task(nn.Linear(2, 2), loss, []), "client_data = []: at least one client"),
        (lambda loss: Task(nn.Linear(2, 2), loss, [PAIR, (PAIR[0], PAIR[1][:2])]), "client_data[1]"),
        (lambda loss: Task(nn.Linear(2, 2), loss, [PAIR], weights="size"), "weights = 'size'"),
        (lambda loss: Task(nn.Linear(2, 2), loss, [PAIR], weights=[0.5]), "weights = [0.5]"),
    ],
)
def test_refusals(build, message):
    with pytest.raises(InputError) as caught:
        build(nn.functional.cross_entropy)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_papers_cnn_runs_with_dropout():
    draw = np.random.default_rng(0)
    data = [
        (torch.from_numpy(draw.normal(size=(8, 1, 28, 28))).float(), torch.from_numpy(draw.integers(0, 10, 8)))
        for _ in range(3)
    ]
    task = Task(mnist_cnn, nn.functional.cross_entropy, data)
    history = fedsum.simulate(
        task, fedsum.FedSUM(), fedsum.Uniform(3, 2), rounds=2, local_steps=2, eta_l=0.1, batch_size=4
    )
    assert history.x.isfinite().all()
    assert history.x.shape == (51_480,)


def test_frozen_parameters_stay():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[0].requires_grad_(False)
    task = Task(module, nn.functional.cross_entropy, [PAIR])
    assert task.d == len(task.init(0)) == 6
    history = fedsum.simulate(task, fedsum.FedSUM(), fedsum.Uniform(1, 1), rounds=5, local_steps=2, eta_l=0.5)
    trained = history.model()
    assert torch.equal(trained[0].weight, module[0].weight)
    assert not torch.equal(trained[1].weight, module[1].weight)


def test_accuracy_is_for_class_labels_only():
    data = [(torch.randn(6, 2), torch.zeros(6, 1))]
    task = Task(nn.Linear(2, 1), nn.functional.mse_loss, data, data[0])
    assert set(task.evaluate(task.init(0))) == {"train_loss", "test_loss"}


@pytest.mark.parametrize("layer", [nn.RReLU(), nn.Dropout(0.5), nn.MultiheadAttention(2, 1, dropout=0.5)])
def test_whatever_may_draw_is_keyed(layer):
    assert Task(nn.Sequential(nn.Linear(2, 2), layer), nn.functional.cross_entropy, [PAIR]).has_dropout


def test_a_task_that_was_changed_is_another():
    task = fedsum.tasks.Quadratic.random(3, 2)
    options = {"rounds": 3, "local_steps": 2, "eta_l": 0.1}
    before = fedsum.simulate(task, fedsum.FedSUM(), fedsum.Uniform(3, 2), **options).x
    task.noise = 5.0
    assert not torch.equal(fedsum.simulate(task, fedsum.FedSUM(), fedsum.Uniform(3, 2), **options).x, before)


def test_a_plain_task_is_a_network_with_the_models_parameters():
    task = nets.task(weights="samples", augment=Augment(1)).to(*DOUBLE)
    network, module = network_of(task), nets.convolutional()
    assert dict(zip(network.names, network.shapes, strict=True)) == {n: p.shape for n, p in module.named_parameters()}
    assert network.training.training
    assert not network.evaluation.training
    assert (network.device, network.dtype) == DOUBLE
    assert (network.loss, network.prepare, network.augment) == (task.loss, None, task.augment)
    assert network.inputs is task.inputs
    assert network.targets is task.targets
    assert network.scale is task.scale
    x = torch.stack([task.init(seed) for seed in range(3)])
    for name, stacked in network.parameters(x).items():
        for row, vector in zip(stacked, x, strict=True):
            assert torch.equal(row, task.model(vector).get_parameter(name))
    batch = task.batches(0, 0, 0, 1, 4)[0]
    assert all(torch.equal(a, b) for a, b in zip(network.samples(batch), task.samples(batch), strict=True))
    assert network.prepared(task.inputs[:2]).dtype == torch.float64
    assert all(
        torch.equal(a, b[:2]) for a, b in zip(network.two_samples(), (task.inputs.double(), task.targets), strict=True)
    )
    assert network.evaluate(x[0], network.outputs) == task.evaluate(x[0])
    chunks = list(network.chunks(1_000_000, 4))
    assert (chunks[0].start, chunks[-1].stop >= 1_000_000) == (0, True)
    assert all(one.stop == other.start for one, other in pairwise(chunks))


def test_a_network_leaves_out_frozen_parameters():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[0].requires_grad_(False)
    network = network_of(Task(module, nn.functional.cross_entropy, [PAIR]))
    assert network.names == ("1.weight", "1.bias")
    assert network.shapes == ((2, 2), (2,))


def overriding(*steps):
    """A subclass of Task that overrides these methods with equal ones."""

    def own(step):
        def method(self, *arguments, **options):
            return getattr(Task, step)(self, *arguments, **options)

        return method

    return type("Own", (Task,), {step: own(step) for step in steps})


def pair_task(kind=Task):
    return kind(nn.Linear(2, 2), nn.functional.cross_entropy, [PAIR])


@pytest.mark.parametrize("step", ["gradient", "gradients", "_loss"])
def test_a_subclass_with_a_training_step_of_its_own_is_trained_by_it(step):
    network = network_of(pair_task(overriding(step)))
    assert network.training is None
    assert network.evaluation is not None


@pytest.mark.parametrize("step", ["evaluate", "_all_outputs", "_outputs"])
def test_a_subclass_with_an_evaluation_of_its_own_is_evaluated_by_it(step):
    network = network_of(pair_task(overriding(step)))
    assert network.training is not None
    assert network.evaluation is None


@pytest.mark.parametrize("step", ["samples", "_prepared"])
def test_engines_know_that_a_subclass_makes_its_own_samples(step):
    network = network_of(pair_task(overriding(step)))
    assert network.training is not None
    assert network.own_samples
    assert not network_of(pair_task()).own_samples


@pytest.mark.parametrize("steps", [["_parameters"], ["gradient", "evaluate"]])
def test_a_subclass_with_steps_of_its_own_for_both_is_no_network(steps):
    assert network_of(pair_task(overriding(*steps))) is None


def test_overriding_other_methods_keeps_the_network():
    network = network_of(pair_task(overriding("batches", "init", "model", "to")))
    assert network.training is not None
    assert network.evaluation is not None


def test_a_step_replaced_in_one_task_counts_as_overridden():
    task = pair_task()
    task.gradient = lambda *arguments: Task.gradient(task, *arguments)
    assert network_of(task).training is None


def test_a_step_from_a_mixin_counts_as_overridden():
    class Mixin:
        def gradients(self, x, clients, batch):
            return x

    class Mixed(Mixin, Task):
        """The mixin comes first."""

    assert network_of(pair_task(Mixed)).training is None


def test_other_tasks_have_no_network():
    class Wrapper:
        """Forwards everything but gradients."""

        def __init__(self, task):
            self.task = task

        def __getattr__(self, name):
            return getattr(self.task, name)

        def gradients(self, x, clients, batch):
            return x

    assert network_of(Quadratic.random(3, 2)) is None
    assert network_of(Wrapper(pair_task())) is None


def test_a_task_of_ones_own_may_give_a_network():
    class Own:
        def as_network(self):
            return pair_task().as_network()

    assert network_of(Own()).names == ("weight", "bias")


GROUP_NORMS = """
import sys
import torch
from torch import nn
import fedsum

class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
    def forward(self, x):
        return nn.functional.group_norm(x, 1, self.weight)

def network(kind):
    rest = [nn.ReLU(), nn.Flatten(), nn.Linear(4 * 64, 2)]
    convolution, norm = nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4)
    if kind == "frozen":
        convolution.requires_grad_(False)
    first = {"first": [nn.GroupNorm(1, 3)], "functional": [Functional()]}.get(kind, [])
    return nn.Sequential(*first, convolution, norm, *rest)

draw = torch.Generator().manual_seed(0)
data = [(torch.randn(9, 3, 8, 8, generator=draw), torch.arange(9) % 2) for _ in range(4)]
task = fedsum.tasks.Task(lambda: network(sys.argv[1]), nn.functional.cross_entropy, data)
ends = [
    fedsum.simulate(task, fedsum.FedAvg(), fedsum.Uniform(4, 2), rounds=2, local_steps=2, eta_l=0.1, batch_size=4,
                    engine=engine, dtype=torch.float64).x for engine in ("loop", "batched")
]
assert (ends[0] - ends[1]).abs().max() < 1e-10
print(task._prepared(task.inputs[:2]).is_contiguous(memory_format=torch.channels_last))
"""


@pytest.mark.parametrize(
    ("kind", "channels_last"), [("first", False), ("functional", False), ("frozen", False), ("", True)]
)
def test_group_norm_whose_input_needs_no_gradient(kind, channels_last):
    """torch crashes in its backward pass on channels_last inputs: in another process, which the crash would end."""
    done = subprocess.run([sys.executable, "-c", GROUP_NORMS, kind], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(channels_last)


@pytest.mark.parametrize("precision", [torch.float64, torch.bfloat16])
def test_a_network_that_computes_its_forward_pass_again(precision):
    """torch.utils.checkpoint calls the module during the backward pass, which needs x and not the initial weights."""
    found = []
    for again in (False, True):
        draw = torch.Generator().manual_seed(0)
        data = [(torch.randn(8, 6, generator=draw), torch.arange(8) % 3) for _ in range(2)]
        make = partial(deep_nets.Checkpointed, again)
        task = Task(make, nn.functional.cross_entropy, data, gradient_norm=True).to(*DOUBLE)
        task.compute_dtype = precision
        x = task.init(0) + 1
        batch = task.batches(0, 0, 0, 1, 4)[0]
        found.append((task.gradient(x, 0, batch), task.evaluate(x)))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


class NoisySamples(Task):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.level = 1.0

    def samples(self, batch):
        inputs, targets = super().samples(batch)
        return inputs + self.level * torch.randn_like(inputs), targets


class NoisyGradient(Task):
    def gradient(self, x, client, batch):
        g = super().gradient(x, client, batch)
        return g + torch.randn_like(g)


def noisy_loss(outputs, targets):
    return nn.functional.cross_entropy(outputs + torch.randn_like(outputs), targets)


def noisy_inputs(x, dtype):
    return (x + torch.randn_like(x)).to(dtype)


@pytest.mark.parametrize("engine", ["loop", "batched", "streams", "workers"])
@pytest.mark.parametrize(
    ("made", "loss", "options"),
    [
        (Task, nn.functional.cross_entropy, {"prepare": noisy_inputs}),
        (Task, noisy_loss, {}),
        (NoisySamples, nn.functional.cross_entropy, {}),
        (NoisyGradient, nn.functional.cross_entropy, {}),
    ],
    ids=["prepare", "loss", "samples", "gradient"],
)
def test_what_a_users_code_draws_is_keyed_by_the_runs_seed(made, loss, options, engine):
    draw = torch.Generator().manual_seed(0)
    data = [(torch.randn(6, 3, generator=draw), torch.randint(2, (6,), generator=draw)) for _ in range(4)]
    given = {"rounds": 3, "local_steps": 2, "eta_l": 0.1, "engine": engine, "eval_every": 1}
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)  # the state of torch's generator must not matter
        before = torch.get_rng_state()
        task = made(lambda: nn.Linear(3, 2), loss, data, **options)
        history = fedsum.simulate(task, fedsum.FedSUM(), fedsum.Uniform(4, 2), **given)
        found.append((history.x, [row["train_loss"] for row in history.rows]))
        assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


class DoubledGradient(Task):
    def gradient(self, x, client, batch):
        return 2 * super().gradient(x, client, batch)


class DoubledGradients(Task):
    def gradients(self, x, clients, batch):
        return 2 * super().gradients(x, clients, batch)


class Doubled(DoubledGradient, DoubledGradients):
    """Overrides both."""


class GradientOfGradients(Task):
    def gradient(self, x, client, batch):
        return 2 * self.gradients(x[None], torch.tensor([client]), batch[None])[0]


@pytest.mark.parametrize("engine", ["loop", "batched", "streams", "workers"])
@pytest.mark.parametrize("made", [DoubledGradient, DoubledGradients, GradientOfGradients])
@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1, "clip_norm": 0.5}])
def test_every_engine_trains_by_the_gradient_that_a_subclass_overrides(made, engine, options):
    draw = torch.Generator().manual_seed(0)
    data = [(torch.randn(6, 3, generator=draw), torch.randint(2, (6,), generator=draw)) for _ in range(4)]
    models = []
    for kind, name in ((Doubled, "loop"), (made, engine)):
        task = kind(lambda: nn.Linear(3, 2), nn.functional.cross_entropy, data)
        given = {"rounds": 3, "local_steps": 2, "eta_l": 0.1, "dtype": torch.float64, "engine": name, **options}
        models.append(fedsum.simulate(task, fedsum.FedSUM(), fedsum.Uniform(4, 2), **given).x)
    assert torch.allclose(*models, rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", ["loop", "batched", "streams", "workers"])
def test_a_loss_with_class_weights_has_the_dtype_of_the_run(engine):
    draw = torch.Generator().manual_seed(0)
    data = [(torch.randn(6, 3, generator=draw), torch.randint(2, (6,), generator=draw)) for _ in range(3)]
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0]))
    weights = torch.tensor([1.0, 3.0], dtype=torch.float64)
    options = {"rounds": 2, "local_steps": 2, "eta_l": 0.1, "dtype": torch.float64, "engine": engine}
    models = [
        fedsum.simulate(Task(nn.Linear(3, 2), given, data), fedsum.FedSUM(), fedsum.Uniform(3, 2), **options).model()
        for given in (loss, partial(nn.functional.cross_entropy, weight=weights))
        for _ in [torch.manual_seed(0)]
    ]
    assert loss.weight.dtype == torch.float32  # the user's own is not changed
    assert torch.allclose(models[0].weight, models[1].weight, rtol=0, atol=1e-15)


@pytest.mark.parametrize("model", [lambda: None, "resnet18", 3], ids=["nothing", "a name", "a number"])
def test_a_model_of_another_kind_is_refused(model):
    with pytest.raises(InputError, match=r"model = '.*': a torch module, or a function that makes one"):
        Task(model, nn.functional.cross_entropy, [(torch.zeros(2, 3), torch.tensor([0, 1]))])
