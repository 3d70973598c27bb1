"""The CUDA engine against the loop on the same device. CI has no GPU: run `pytest tests/test_cuda.py` on one."""

import warnings

import deep_nets
import nets
import pytest
import torch
from torch import nn

import fedsum
from fedsum import (
    FOCUS,
    MIFA,
    Compressed,
    Explicit,
    FedAvg,
    FedAWE,
    FedDyn,
    FedProx,
    FedSUM,
    FedSUMCR,
    Independent,
    Int8,
    RandomK,
    TopK,
    Uniform,
    simulate,
)
from fedsum.algorithms import ALGORITHMS
from fedsum.algorithms.keyed_uniform import round_stream, stream_uniform
from fedsum.engine import choose, client_step, kernels, streams
from fedsum.engine.bank import blocks, state_bank
from fedsum.engine.bank.offload import OffloadedBlock
from fedsum.tasks import Quadratic

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
OPTIONS = {"rounds": 20, "local_steps": 3, "eta_l": 0.1, "batch_size": 8, "eval_every": 20, "seed": 1}
FOUR = Uniform(nets.N, 4)  # a single chunk size, because each size is compiled


@pytest.fixture(scope="module")
def task():
    return nets.task()


def run(task, algorithm, engine, **options):
    schedule = options.pop("schedule", Independent(nets.N, 0.25))
    return simulate(task, algorithm, schedule, engine=engine, device="cuda", **(OPTIONS | options))


@pytest.mark.parametrize("algorithm", [cls() for cls in ALGORITHMS.values()], ids=lambda a: a.name)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)], ids=["64", "32"])
def test_batched_agrees_with_the_loop(task, algorithm, dtype, tolerance):
    loop, batched = (run(task, algorithm, engine, dtype=dtype).x for engine in ("loop", "batched"))
    assert (batched - loop).norm() <= tolerance * loop.norm()
    assert (loop - task.init(1).to(loop)).norm() > 1e-2


def test_cuda_agrees_with_the_cpu(task):
    options = OPTIONS | {"dtype": torch.float64}
    on_cpu = simulate(task, FedSUM(), Independent(nets.N, 0.25), engine="loop", device="cpu", **options)
    on_cuda = run(task, FedSUM(), "auto", dtype=torch.float64)
    assert (on_cuda.x.cpu() - on_cpu.x).norm() <= 1e-10 * on_cpu.x.norm()
    assert on_cuda.rows[-1]["train_loss"] == pytest.approx(on_cpu.rows[-1]["train_loss"], rel=1e-9)


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_deterministic_gives_the_same_bits_twice(dropout, precision):
    task = nets.task(dropout=dropout)
    options = {"deterministic": True, "schedule": FOUR, "precision": precision}
    one, two = (run(task, FedSUM(), "batched", **options).x for _ in range(2))
    assert torch.equal(one, two)
    fresh = run(nets.task(dropout=dropout), FedSUM(), "batched", **options).x
    assert torch.equal(one, fresh)
    assert not torch.equal(one, run(task, FedSUM(), "batched", **(options | {"seed": 2})).x)


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_masks_differ_by_client_and_round(precision):
    data = nets.images()
    same = [(data.inputs[:1].expand(8, -1, -1, -1), data.targets[:1].expand(8))] * nets.N
    task = fedsum.tasks.Task(lambda: nets.convolutional(0.5), torch.nn.functional.cross_entropy, same)
    # The step is negligible, so that clients and rounds differ only by their dropout masks.
    options = {"local_steps": 1, "eta_l": 1e-12, "batch_size": 8, "precision": precision}
    first = run(task, FedSUM(), "batched", rounds=1, schedule=Explicit(nets.N, [[0, 1]]), **options)
    second = run(task, FedSUM(), "batched", rounds=2, schedule=Explicit(nets.N, [[2], [0, 1]]), **options)
    h = [first.clients[0]["h"], first.clients[1]["h"], second.clients[0]["h"]]
    for a, b in [(0, 1), (0, 2)]:
        assert (h[a] - h[b]).abs().max() > 1e-3


@pytest.mark.parametrize("algorithm", [FedAvg(), FedSUM(), FOCUS(), FedProx(mu=0.5)], ids=lambda a: a.name)
@pytest.mark.parametrize("extra", [{}, {"clip_norm": 0.3, "weight_decay": 0.05}], ids=["plain", "regularised"])
def test_epochs_clipping_and_weight_decay(algorithm, extra):
    """Clients with different numbers of steps; the CPU's loop is the reference."""
    options = OPTIONS | {"rounds": 5, "local_steps": None, "local_epochs": 1, "batch_size": 4, "dtype": torch.float64}
    schedule = Uniform(nets.N, 4)
    loop = simulate(nets.task(), algorithm, schedule, engine="loop", device="cpu", **(options | extra)).x
    batched = run(nets.task(), algorithm, "batched", schedule=schedule, **(options | extra)).x.cpu()
    assert (batched - loop).norm() <= 1e-10 * loop.norm()


@pytest.mark.parametrize("extra", [{"local_steps": None, "local_epochs": 1}, {"clip_norm": 0.3, "weight_decay": 0.05}])
def test_our_kernels_count_clip_and_decay(extra, task, with_our_kernels):
    options = {"batch_size": 4, "rounds": 5} | extra
    reference = run(task, FedSUM(), "loop", dtype=torch.float64, **options).x.float()
    x = run(nets.task(), FedSUM(), "batched", precision="tf32", **options).x
    assert with_our_kernels()
    assert 1e-6 < (x - reference).norm() / reference.norm() < 2e-2


@pytest.fixture(scope="module")
def streamed():
    """One task for all algorithms, so that its step is compiled once."""
    return nets.task()


@pytest.mark.parametrize("algorithm", [cls() for cls in ALGORITHMS.values()], ids=lambda a: a.name)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)], ids=["64", "32"])
def test_streams_agrees_with_the_loop(streamed, algorithm, dtype, tolerance):
    loop, x = (run(streamed, algorithm, engine, dtype=dtype, schedule=FOUR).x for engine in ("loop", "streams"))
    assert (x - loop).norm() <= tolerance * loop.norm()
    assert (loop - streamed.init(1).to(loop)).norm() > 1e-2


def test_streams_trains_cohorts_of_any_size(streamed, monkeypatch):
    monkeypatch.setattr(streams, "BRANCHES", 3)
    options = {"dtype": torch.float64, "schedule": Independent(nets.N, 0.4)}
    task = nets.task(weights="samples")
    loop, x = (run(task, FedSUMCR(), engine, **options).x for engine in ("loop", "streams"))
    assert (x - loop).norm() <= 1e-10 * loop.norm()


@pytest.mark.parametrize("algorithm", [FedAvg(), FOCUS(), FedProx(mu=0.5)], ids=lambda a: a.name)
@pytest.mark.parametrize("extra", [{}, {"clip_norm": 0.3, "weight_decay": 0.05}], ids=["plain", "regularised"])
def test_streams_with_epochs_clipping_and_weight_decay(streamed, algorithm, extra):
    options = {"rounds": 5, "local_steps": None, "local_epochs": 1, "batch_size": 4, "dtype": torch.float64}
    loop, x = (run(streamed, algorithm, engine, schedule=FOUR, **options, **extra).x for engine in ("loop", "streams"))
    assert (x - loop).norm() <= 1e-10 * loop.norm()


def test_streams_computes_a_task_with_gradients_of_its_own():
    task = Quadratic.random(nets.N, 6, seed=0)
    loop, x = (run(task, FedSUM(), engine, dtype=torch.float64, schedule=FOUR).x for engine in ("loop", "streams"))
    assert (x - loop).norm() <= 1e-10 * loop.norm()


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_streams_deterministic_gives_the_same_bits_twice(dropout, precision):
    task = nets.task(dropout=dropout)
    options = {"deterministic": True, "schedule": FOUR, "precision": precision}
    one, two = (run(task, FedSUM(), "streams", **options).x for _ in range(2))
    assert torch.equal(one, two)
    assert torch.equal(one, run(nets.task(dropout=dropout), FedSUM(), "streams", **options).x)
    assert not torch.equal(one, run(task, FedSUM(), "streams", **(options | {"seed": 2})).x)


def test_streams_masks_differ_by_client_and_round():
    data = nets.images()
    same = [(data.inputs[:1].expand(8, -1, -1, -1), data.targets[:1].expand(8))] * nets.N
    task = fedsum.tasks.Task(lambda: nets.convolutional(0.5), torch.nn.functional.cross_entropy, same)
    options = {"local_steps": 1, "eta_l": 1e-12, "batch_size": 8}
    torch.cuda.manual_seed(9)
    before = torch.cuda.get_rng_state()
    first = run(task, FedSUM(), "streams", rounds=1, schedule=Explicit(nets.N, [[0, 1]]), **options)
    second = run(task, FedSUM(), "streams", rounds=2, schedule=Explicit(nets.N, [[2], [0, 1]]), **options)
    h = [first.clients[0]["h"], first.clients[1]["h"], second.clients[0]["h"]]
    assert (h[0] - h[1]).abs().max() > 1e-3
    assert (h[0] - h[2]).abs().max() > 1e-3
    again = run(task, FedSUM(), "streams", rounds=1, schedule=Explicit(nets.N, [[0, 1]]), **options)
    assert torch.equal(first.clients[0]["h"], again.clients[0]["h"])
    assert torch.equal(torch.cuda.get_rng_state(), before)


def test_streams_with_filters_in_channels_last_order(monkeypatch):
    """Exactly in float64. In tf32 and bf16, for which the order is meant, one gradient; more steps would amplify it."""
    task = deep_nets.task(deep_nets.resnet)
    options = {"schedule": Uniform(deep_nets.N, 3), "eta_l": 0.01}
    one_step = options | {"rounds": 1, "local_steps": 1}
    gradient = run(task, FedSUM(), "loop", dtype=torch.float64, **one_step).server["y"].float()
    for precision, tolerance in (("tf32", 0.05), ("bf16", 0.3)):
        y = run(task, FedSUM(), "streams", precision=precision, **one_step).server["y"]
        assert 0 < (y - gradient).norm() < tolerance * gradient.norm()
    exact = run(task, FedSUM(), "loop", dtype=torch.float64, rounds=3, **options).x
    monkeypatch.setattr(client_step, "reorders_filters", lambda device: True)
    x = run(deep_nets.task(deep_nets.resnet), FedSUM(), "streams", dtype=torch.float64, rounds=3, **options).x
    assert (x - exact).norm() <= 1e-10 * exact.norm()


@pytest.mark.parametrize("make", deep_nets.NETWORKS, ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    ("precision", "stacked_up_to"),
    [("tf32", 0), ("bf16", 0), ("tf32", choose.STACKED_UP_TO)],
    ids=["large-tf32", "large-bf16", "small-tf32"],
)
def test_auto_trains(make, precision, stacked_up_to, monkeypatch):
    """Without a word of advice: warnings are errors. `large`: as if the network had too many parameters to stack."""
    if make in (deep_nets.bert, deep_nets.vit):
        pytest.importorskip("transformers")
    monkeypatch.setattr(choose, "STACKED_UP_TO", stacked_up_to)
    options = {
        "schedule": Uniform(deep_nets.N, 2),
        "rounds": 10,
        "eta_l": 0.002 if make is deep_nets.resnet else 0.02,  # at 0.02 a ResNet's loss oscillates, on any engine
        "eval_every": 10,
        "precision": precision,
    }
    history = run(deep_nets.task(make), FedSUM(), "auto", **options)
    assert history.rows[-1]["train_loss"] < history.rows[0]["train_loss"]


def test_auto_falls_to_the_loop_for_a_network_that_reads_numbers_on_the_host():
    task = deep_nets.task(deep_nets.Undecided)
    options = {"schedule": Uniform(deep_nets.N, 2), "dtype": torch.float64}
    loop = run(task, FedSUM(), "loop", **options).x
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        x = run(task, FedSUM(), "auto", **options).x
    assert (x - loop).norm() <= 1e-10 * loop.norm()
    assert [str(warning.message).split(":")[0] for warning in said] == ["streams"]
    # The device and its generator work as before.
    assert torch.rand(3, device="cuda").isfinite().all()
    one, two = (run(nets.task(dropout=0.5), FedAvg(), "streams", schedule=FOUR).x for _ in range(2))
    assert torch.equal(one, two)


def test_streams_continues_a_resumed_run(streamed, tmp_path):
    options = {"deterministic": True, "schedule": FOUR, "checkpoint_rounds": 3}

    def stop(done):
        if done.round == 13:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(streamed, FedSUMCR(), "streams", folder=tmp_path, on_round=stop, **options)
    resumed = run(streamed, FedSUMCR(), "auto", folder=tmp_path, **options)
    assert torch.equal(resumed.x, run(streamed, FedSUMCR(), "streams", **options).x)
    assert (tmp_path / "log").read_text().count("engine: streams") == 2


@pytest.mark.parametrize("compressor", [TopK(0.1), RandomK(0.1), Int8()], ids=repr)
def test_compressed_uplinks_are_those_of_the_cpu(compressor, task):
    algorithm = Compressed(FedSUM(), compressor)
    options = OPTIONS | {"dtype": torch.float64}
    on_cpu = simulate(task, algorithm, Independent(nets.N, 0.25), engine="loop", device="cpu", **options)
    on_cuda = run(task, algorithm, "batched", dtype=torch.float64)
    assert (on_cuda.x.cpu() - on_cpu.x).norm() <= 1e-10 * on_cpu.x.norm()
    assert on_cuda.rows[-1]["bytes"] == on_cpu.rows[-1]["bytes"]
    twice = [run(task, algorithm, "batched", deterministic=True, schedule=FOUR).x for _ in range(2)]
    assert torch.equal(*twice)


def test_keyed_numbers_are_those_of_the_cpu():
    keys = torch.tensor([3, -5, 2**62])
    assert torch.equal(
        stream_uniform(round_stream(keys.cuda(), 7), 1000).cpu(), stream_uniform(round_stream(keys, 7), 1000)
    )


def test_dropout_leaves_the_users_generator_alone():
    torch.cuda.manual_seed(9)
    before = torch.cuda.get_rng_state()
    run(nets.task(dropout=0.5), FedAvg(), "batched", rounds=2, schedule=FOUR)
    assert torch.equal(torch.cuda.get_rng_state(), before)


def test_tf32_is_close_and_fp32_is_exact():
    draw = torch.Generator().manual_seed(0)
    data = [(torch.randn(64, 512, generator=draw), torch.randint(256, (64,), generator=draw)) for _ in range(nets.N)]
    # Matrices that are large enough for tensor cores, which round.
    task = fedsum.tasks.Task(lambda: torch.nn.Linear(512, 256), torch.nn.functional.cross_entropy, data)
    options = {"schedule": FOUR, "batch_size": 64}
    reference = run(task, FedSUM(), "loop", dtype=torch.float64, **options).x.float()
    error = []
    for precision in ("fp32", "tf32"):
        x = run(task, FedSUM(), "batched", precision=precision, **options).x
        error.append(float((x - reference).norm() / reference.norm()))
    assert error[0] < 1e-6
    assert 2 * error[0] < error[1] < 1e-2
    assert not torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize(
    "algorithm", [FedSUM(), FOCUS(), FedProx(mu=0.5), FedDyn(alpha=0.5)], ids=lambda algorithm: algorithm.name
)
def test_our_kernels_train_as_torch_does(algorithm, task, with_our_kernels):
    reference = run(task, algorithm, "loop", dtype=torch.float64).x.float()
    x = run(nets.task(), algorithm, "batched", precision="tf32").x
    assert with_our_kernels()
    # Factors have ten bits, and max pools may choose the other of two nearly equal pixels.
    assert 1e-6 < (x - reference).norm() / reference.norm() < 2e-2


def cnn(make, clients=nets.N, **options):
    """One of the paper's networks without dropout. Filters and images have so few bits that rounding does not change
    the convolutions' outputs, so max pools choose the same pixels."""
    draw = torch.Generator().manual_seed(0)
    network = make()
    for layer in network:
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
        if isinstance(layer, nn.Conv2d):
            for values in layer.parameters(recurse=False):
                values.data = torch.randint(-4, 5, values.shape, generator=draw) / 4
    shape = (network[0].in_channels, *((28, 28) if network[0].in_channels == 1 else (32, 32)))
    images = torch.randint(-1, 2, (70 * clients, *shape), generator=draw).float()
    labels = torch.randint(10, (len(images),), generator=draw)
    if "prepare" in options:
        images = (images + 1).to(torch.uint8)
    data = [(images[i::clients], labels[i::clients]) for i in range(clients)]
    return fedsum.tasks.Task(network, nn.functional.cross_entropy, data, **options)


def assert_as_close_as_torch(task, **options):
    """Asserts that our error against the exact gradients is like that of torch's tf32. Where rounding changes the sign
    of a sum before a linear layer's ReLU, both errors are percents."""
    exact = run(task, FedSUM(), "loop", dtype=torch.float64, **options)

    def errors(engine):
        found = run(task, FedSUM(), engine, precision="tf32", **options).clients
        pairs = [(found[i]["h"], exact.clients[i]["h"].float()) for i in exact.clients]
        return torch.stack([(h - wanted).norm() / wanted.norm() for h, wanted in pairs])

    ours, torchs = errors("batched"), errors("loop")
    assert 1e-7 < ours.median() < 5 * torchs.median()
    assert ours.max() < 0.1


def unpadded_cnn():
    """pfl-research's network for CIFAR-10."""
    first = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)]
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(12544, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10))


def group_norm_cnn():
    first = [nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.GroupNorm(4, 32), nn.ReLU()]
    second = [nn.Conv2d(32, 48, 3, padding=1, bias=False), nn.GroupNorm(4, 48), nn.ReLU(), nn.AvgPool2d(2)]
    third = [nn.Conv2d(48, 96, (1, 3)), nn.ReLU(), nn.MaxPool2d(3), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*first, *second, *third, nn.Flatten(), nn.Linear(96, 10))


@pytest.mark.parametrize(
    "make",
    [
        fedsum.tasks.models.mnist_cnn,
        fedsum.tasks.models.svhn_cnn,
        fedsum.tasks.models.cifar10_cnn,
        fedsum.tasks.models.femnist_cnn,
        fedsum.tasks.models.lenet5,
        unpadded_cnn,
        group_norm_cnn,
    ],
)
def test_our_kernels_agree_with_exact_gradients(make, with_our_kernels):
    """At the size of real networks, where programs handle many pixels and rows of x are not aligned."""
    task = cnn(make)
    options = {"rounds": 1, "local_steps": 1, "batch_size": 64, "schedule": Uniform(nets.N, 7)}
    assert_as_close_as_torch(task, **options)
    assert with_our_kernels()


@pytest.mark.parametrize(
    "augment",
    [
        None,
        fedsum.tasks.transforms.Augment(2, flip=True),
        fedsum.tasks.transforms.Augment(4, flip=True, per_batch=True, fill=(3,)),  # 2 after preparation
    ],
)
def test_our_kernels_with_bytes_weights_and_several_chunks(augment, with_our_kernels):
    prepare = fedsum.tasks.transforms.Standardize((1 / 255,), (1 / 255,))  # -1, 0 and 1 again
    options = {"clients": 75, "prepare": prepare, "augment": augment, "weights": "samples"}
    task = cnn(fedsum.tasks.models.mnist_cnn, **options)
    options = {"rounds": 1, "local_steps": 1, "batch_size": 16, "schedule": Uniform(75, 70)}
    assert_as_close_as_torch(task, **options)
    assert with_our_kernels()


@pytest.fixture
def with_our_kernels(monkeypatch):
    """Whether the last task was trained with our kernels."""
    built, steps = [], kernels.steps
    monkeypatch.setattr(kernels, "steps", lambda task: built.append(steps(task)) or built[-1])
    return lambda: built[-1] is not None


def test_our_kernels_drop_by_the_key():
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.Dropout(0.5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    network = nn.Sequential(*layers, nn.Linear(36, 3))

    def end(seed):
        task = fedsum.tasks.Task(network, nn.functional.cross_entropy, nets.images())
        return run(task, FedSUM(), "batched", precision="tf32", schedule=FOUR, seed=seed)

    one = end(1)
    assert torch.equal(one.x, end(1).x)
    assert not torch.equal(one.x, end(2).x)
    assert one.rows[-1]["train_loss"] < one.rows[0]["train_loss"]


@pytest.mark.parametrize("room", ["device", "host", "host, prefetched", "file"])
@pytest.mark.parametrize("algorithm", [FedSUMCR(), MIFA(), FedAWE()], ids=lambda a: a.name)
@pytest.mark.parametrize("largest", [2**30, 2000], ids=["one-block", "many-blocks"])
def test_bank_lies_where_there_is_room_and_the_bits_are_the_same(room, algorithm, largest, task, monkeypatch):
    options = {"dtype": torch.float64, "rounds": 60, "schedule": Independent(nets.N, 0.3), "deterministic": True}
    expected = run(task, algorithm, "loop", **options)
    monkeypatch.setattr(state_bank, "_LARGEST", largest)
    if room == "host, prefetched":  # no room for blocks, but for the next cohort
        monkeypatch.setattr(blocks, "_SHARE", 1e-12)
        monkeypatch.setattr(blocks, "host_memory_free", lambda: 1e30)
    elif room != "device":
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *device: (0, 0))
    if room == "file":
        monkeypatch.setattr(blocks, "host_memory_free", lambda: 0)
    history = run(task, algorithm, "loop", **options)
    bank = history.clients if history.clients.initial else history.memory
    assert all(isinstance(block, OffloadedBlock) == (room != "device") for block in bank._blocks)
    assert len(bank._blocks) > 1 or largest == 2**30
    assert torch.equal(history.x, expected.x)
    for i in history.clients:
        for name, value in history.clients[i].items():
            assert torch.equal(value.to(history.x.device), expected.clients[i][name].to(history.x.device))


@pytest.mark.parametrize("offloaded", [False, True])
def test_a_resumed_run_ends_with_the_same_bits(task, offloaded, tmp_path, monkeypatch):
    if offloaded:  # as if the device were full: client states are in host memory
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (0, 1))
    options = {"deterministic": True, "schedule": FOUR, "checkpoint_rounds": 3}

    def stop(done):
        if done.round == 13:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(task, FedSUMCR(), "batched", folder=tmp_path, on_round=stop, **options)
    resumed = run(task, FedSUMCR(), "batched", folder=tmp_path, **options)
    whole = run(task, FedSUMCR(), "batched", **options)
    assert torch.equal(resumed.x, whole.x)
    assert all(
        torch.equal(v, whole.clients[i][name]) for i in resumed.clients for name, v in resumed.clients[i].items()
    )
    assert "resumed after round" in (tmp_path / "log").read_text()


def test_a_task_that_stays_on_the_cpu_is_trained_there():
    """For any `device`: the task's gradients are on the CPU, where no graph can be captured."""

    class Stays(Quadratic):
        def to(self, device, dtype):
            return super().to(torch.device("cpu"), dtype)

    whole = Quadratic.random(6, 4)
    task = Stays(whole.curvature, whole.centers)
    options = {"rounds": 20, "local_steps": 2, "eta_l": 0.05, "dtype": torch.float64}
    auto, cpu = (simulate(task, FedSUM(), Uniform(6, 2), device=device, **options).x for device in ("auto", "cpu"))
    assert torch.equal(auto, cpu)
