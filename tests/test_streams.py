"""The engine streams gives the loop's results, on a CPU. tests/test_cuda.py tests its graphs."""

import deep_nets
import nets
import numpy as np
import pytest
import torch
from problems import noisy
from torch import nn

import fedsum
from fedsum import (
    FOCUS,
    Explicit,
    FedAvg,
    FedProx,
    FedSUM,
    FedSUMCR,
    Independent,
    InputError,
    LocalPlan,
    Uniform,
    simulate,
)
from fedsum.algorithms import ALGORITHMS
from fedsum.engine import choose, client_step, streams
from fedsum.engine.flat_layout import ALIGNMENT, FlatLayout
from fedsum.engine.loop import LoopEngine
from fedsum.engine.streams import StreamsEngine, even_chunks, graph_steps
from fedsum.training import Options

every_algorithm = pytest.mark.parametrize("algorithm", [cls() for cls in ALGORITHMS.values()], ids=lambda a: a.name)
OPTIONS = {"rounds": 10, "local_steps": 3, "eta_l": 0.1, "batch_size": 8, "eval_every": 20, "seed": 1}


def final(algorithm, engine, *, task=None, schedule=None, **options):
    schedule = schedule or Independent(nets.N, 0.4)  # cohorts of any size, some empty
    options = {"dtype": torch.float64} | OPTIONS | options
    return simulate(task or nets.task(), algorithm, schedule, engine=engine, **options).x


def assert_agree(algorithm, tolerance=1e-10, **options):
    loop, x = (final(algorithm, engine, **options) for engine in ("loop", "streams"))
    assert (x - loop).norm() <= tolerance * loop.norm()
    return loop


@pytest.fixture
def with_graphs(monkeypatch):
    """The engine's way on CUDA, on a CPU: nothing is compiled, and the steps are taken where a graph is replayed."""

    class Branches:
        limit, warmed, captured = 16, 0, 0

        def warm_up(self, step, memory):
            Branches.warmed += 1
            for place, row in enumerate(memory.rows):
                step(row, memory.batches[0, place], memory.alive[0, place])

        def capture(self, step, memory):
            Branches.captured += 1

            def replay():
                for place, row in enumerate(memory.rows):
                    for batch, alive in zip(memory.batches, memory.alive, strict=True):
                        step(row, batch[place], alive[place])

            return replay

        def chunk_limit(self, step, memory):
            return self.limit

    monkeypatch.setattr(streams, "uses_graphs", lambda device: True)
    monkeypatch.setattr(streams, "BranchStreams", Branches)
    monkeypatch.setattr(torch, "compile", lambda call, **options: call)
    # Filters in channels_last order, as on CUDA.
    monkeypatch.setattr(client_step, "reorders_filters", lambda device: True)
    return Branches


@every_algorithm
def test_streams_agrees_with_the_loop(algorithm):
    loop = assert_agree(algorithm)
    assert (loop - nets.task().init(1)).norm() > 1e-2


@every_algorithm
def test_graphs_agree_with_the_loop(algorithm, with_graphs):
    assert_agree(algorithm)
    assert with_graphs.captured


@pytest.mark.parametrize("algorithm", [FedSUM(), FOCUS(), FedProx(mu=0.5)], ids=lambda a: a.name)
def test_a_task_with_gradients_of_its_own(algorithm, with_graphs):
    assert_agree(algorithm, task=noisy(nets.N))


@pytest.mark.parametrize("algorithm", [FedAvg(), FedSUM(), FOCUS(), FedProx(mu=0.5)], ids=lambda a: a.name)
@pytest.mark.parametrize("extra", [{}, {"clip_norm": 0.3, "weight_decay": 0.05}], ids=["plain", "regularised"])
@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "graphs"])
def test_epochs_clipping_and_weight_decay(algorithm, extra, graphs, request):
    if graphs:
        request.getfixturevalue("with_graphs")
    options = {"local_steps": None, "local_epochs": 1, "batch_size": 2, "rounds": 5}
    loop = assert_agree(algorithm, **options, **extra)
    if extra:
        assert (final(algorithm, "streams", **options) - loop).norm() > 1e-3 * loop.norm()


def test_weighted_clients():
    assert_agree(FedSUM(), task=nets.task(weights="samples"))


@pytest.mark.parametrize(("limit", "K"), [(1, 3), (2, 3), (4, 70)])
def test_chunks_and_long_rounds(limit, K, with_graphs, monkeypatch):
    monkeypatch.setattr(with_graphs, "limit", limit)
    assert_agree(FedSUMCR(), schedule=Uniform(nets.N, 5), local_steps=K, rounds=3)


def test_a_later_run_of_the_same_task_finds_its_graphs(with_graphs):
    class OnCpu(fedsum.tasks.Task):
        def to(self, device, dtype):
            return super().to(torch.device("cpu"), dtype)

    task = OnCpu(nets.convolutional, nn.functional.cross_entropy, nets.images())
    x, clients = task.init(0), np.arange(4)
    for _ in range(2):
        bound = fedsum.engine.bound_task(task, torch.device("cuda"), torch.float32)
        StreamsEngine(bound, 0, 3, 8)(LocalPlan(x, 0.1), clients, 0)
    assert with_graphs.captured == 1
    StreamsEngine(bound, 0, 3, 8)(LocalPlan(x, 0.1, torch.ones_like(x)), clients, 0)
    assert with_graphs.captured == 2  # another kind of plan


def test_a_cohort_of_sentences_has_graphs_for_its_lengths(with_graphs):
    class Lengths(fedsum.tasks.Task):
        """Batches whose last dimension differs between rounds."""

        def batches(self, seed, t, client, K, batch_size):
            indices = super().batches(seed, t, client, K, batch_size)
            return nn.functional.pad(indices[..., None], (0, 1 + t % 2))

        def samples(self, batch):
            return super().samples(batch[..., 0])

    task = Lengths(nets.convolutional, nn.functional.cross_entropy, nets.images())
    assert_agree(FedSUM(), task=task, schedule=Uniform(nets.N, 3))
    assert with_graphs.captured == 2


@pytest.mark.parametrize("make", deep_nets.NETWORKS, ids=lambda make: make.__name__)
def test_deep_networks(make):
    if make in (deep_nets.bert, deep_nets.vit):
        pytest.importorskip("transformers")
    task = deep_nets.task(make)
    options = {"schedule": Uniform(deep_nets.N, 2), "rounds": 3, "local_steps": 2}
    if make is deep_nets.bert:  # its dropout masks are keyed by the client in the loop, and by the chunk here
        one, two = (final(FedSUM(), "streams", task=task, **options) for _ in range(2))
        assert torch.equal(one, two)
    else:
        assert_agree(FedSUM(), task=task, **options)


def test_dropout_is_keyed():
    task = nets.task(dropout=0.5)
    torch.manual_seed(9)
    before = torch.get_rng_state()
    one, two = (final(FedAvg(), "streams", task=task) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, two)
    assert not torch.equal(one, final(FedAvg(), "streams", task=task, seed=2))
    assert not torch.equal(one, final(FedAvg(), "streams"))


def test_masks_differ_by_client_and_round():
    data = nets.images()
    same = [(data.inputs[:1].expand(8, -1, -1, -1), data.targets[:1].expand(8))] * nets.N
    task = fedsum.tasks.Task(lambda: nets.convolutional(0.5), nn.functional.cross_entropy, same)
    options = {"local_steps": 1, "eta_l": 1e-12, "batch_size": 8, "engine": "streams", "dtype": torch.float64}
    first = simulate(task, FedSUM(), Explicit(nets.N, [[0, 1]]), rounds=1, **options)
    second = simulate(task, FedSUM(), Explicit(nets.N, [[2], [0, 1]]), rounds=2, **options)
    h = [first.clients[0]["h"], first.clients[1]["h"], second.clients[0]["h"]]
    assert (h[0] - h[1]).abs().max() > 1e-3
    assert (h[0] - h[2]).abs().max() > 1e-3


def test_without_a_compiler_the_step_is_captured_as_it_is(with_graphs, monkeypatch):
    def broken(call, **options):
        def fail(*arguments):
            raise RuntimeError("no\ncompiler")

        return fail

    monkeypatch.setattr(torch, "compile", broken)
    loop = final(FedSUM(), "loop")
    with pytest.warns(UserWarning, match=r"streams: the network cannot be compiled, so its .* \(no compiler\)") as said:
        x = final(FedSUM(), "streams")
    assert len(said) == 1
    assert (x - loop).norm() <= 1e-10 * loop.norm()
    assert with_graphs.captured


def test_without_a_capture_the_loop_trains(with_graphs, monkeypatch):
    def fail(self, step, memory):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(with_graphs, "capture", fail)
    loop = final(FedSUM(), "loop")
    with pytest.warns(UserWarning, match=r"streams: the steps cannot be captured .* 'loop' .* \(operation not") as said:
        x = final(FedSUM(), "streams")
    assert len(said) == 1
    assert torch.equal(x, loop)


@pytest.mark.parametrize("engine", ["loop", "streams", "batched"])
def test_bf16_is_close(engine):
    options = {"dtype": torch.float32, "schedule": Uniform(nets.N, 4), "rounds": 5}
    exact = final(FedSUM(), "loop", **options)
    x = final(FedSUM(), engine, precision="bf16", **options)
    assert x.dtype == torch.float32
    moved = (exact - nets.task().init(1)).norm()
    assert 1e-5 * moved < (x - exact).norm() < 0.05 * moved


def test_bf16_of_a_frozen_network():
    def make():
        network = nets.convolutional()
        network[0].requires_grad_(False)
        return network

    task = fedsum.tasks.Task(make(), nn.functional.cross_entropy, nets.images())
    options = {"dtype": torch.float32, "task": task, "schedule": Uniform(nets.N, 4), "precision": "bf16", "rounds": 3}
    loop, x = (final(FedSUM(), engine, **options) for engine in ("loop", "streams"))
    assert (x - loop).norm() < 1e-2 * loop.norm()


def test_bf16_is_refused_where_a_task_computes_its_own_gradients():
    class Own(fedsum.tasks.Task):
        def gradient(self, x, client, batch):
            return super().gradient(x, client, batch)

    task = Own(nets.convolutional, nn.functional.cross_entropy, nets.images())
    with pytest.raises(InputError, match="Own computes its gradients itself"):
        final(FedSUM(), "loop", task=task, precision="bf16")
    with pytest.raises(InputError, match="has no network that could compute in it"):
        final(FedSUM(), "loop", task=noisy(nets.N), precision="bf16")


def test_auto_on_cuda_chooses_by_a_fixed_rule(monkeypatch):
    small = nets.task()
    assert choose.for_cuda(small, 0, 8) == "batched"
    monkeypatch.setattr(choose, "STACKED_UP_TO", 10)
    assert choose.for_cuda(small, 0, 8) == "streams"
    monkeypatch.setattr(choose.kernels, "steps", lambda task: object())
    assert choose.for_cuda(small, 0, 8) == "batched"


@pytest.mark.parametrize("make", [deep_nets.WithCustomFunction, deep_nets.Undecided])
def test_auto_does_not_stack_what_cannot_be_stacked(make):
    assert choose.for_cuda(deep_nets.task(make), 0, 8) == "streams"


def auto_on_cuda(task, **options):
    """The engine that auto chooses on CUDA; its vectors are on the CPU."""
    job = {"seed": 1, "K": 3, "batch_size": 8, "rounds": 10}
    return choose.choose_engine("auto", task, torch.device("cuda"), **job, **options)


def test_auto_falls_to_an_engine_that_works(monkeypatch):
    task = nets.task()
    plan, clients = LocalPlan(task.init(0), 0.1), np.array([1, 4])
    expected = LoopEngine(task, 1, 3, 8)(plan, clients, 0)
    engine = auto_on_cuda(task)
    assert engine.name == "batched"

    def fail(self, *arguments):
        raise RuntimeError("vmap: no item()")

    monkeypatch.setattr(choose.BatchedEngine, "__call__", fail)
    with pytest.warns(
        UserWarning, match=r"engine 'auto': 'batched' cannot .*, so 'streams' does \(vmap: no item\(\)\)"
    ):
        G = engine(plan, clients, 0)
    torch.testing.assert_close(G, expected)
    assert engine.name == "streams"
    monkeypatch.setattr(choose.StreamsEngine, "__call__", fail)
    with pytest.warns(UserWarning, match="'streams' cannot .*, so 'loop' does"):
        assert torch.equal(engine(plan, clients, 0), expected)
    assert torch.equal(engine(plan, clients, 0), expected)
    engine.close()


def test_a_resumed_run_keeps_the_engine_that_auto_chose():
    task = nets.task()
    assert auto_on_cuda(task, chosen="streams").name == "streams"
    assert auto_on_cuda(task, chosen="workers").name == "batched"  # of a run that began on a CPU


def test_the_engine_is_in_the_folder_and_in_the_checkpoint(tmp_path, monkeypatch):
    options = OPTIONS | {"rounds": 3}
    simulate(nets.task(), FedSUM(), Uniform(nets.N, 3), engine="streams", folder=tmp_path, **options)
    assert "engine: streams" in (tmp_path / "log").read_text()
    seen = []
    choose_engine = fedsum.engine.choose_engine

    def watched(*arguments, chosen, **settings):
        seen.append(chosen)
        return choose_engine(*arguments, chosen=chosen, **settings)

    monkeypatch.setattr("fedsum.training.training_loop.choose_engine", watched)
    more = options | {"rounds": 4}
    simulate(nets.task(), FedSUM(), Uniform(nets.N, 3), engine="auto", folder=tmp_path, extend=True, **more)
    assert seen == ["streams"]


def test_layout():
    shapes, filters = [(4, 3, 3, 3), (4,), (64,), (128,), (5, 2)], [True, False, False, False, False]
    layout = FlatLayout(shapes, filters)
    vectors = torch.randn(3, layout.d)
    rows = layout.rows(3, vectors)
    layout.load(rows, vectors)
    parameters = layout.parameters(rows[1])
    pieces = torch.split(vectors[1], [torch.Size(shape).numel() for shape in shapes])
    for parameter, piece, shape in zip(parameters, pieces, shapes, strict=True):
        assert torch.equal(parameter, piece.view(shape))
        assert parameter.storage_offset() % ALIGNMENT == 0
    assert parameters[0].is_contiguous(memory_format=torch.channels_last)
    assert not parameters[0].is_contiguous()
    back = torch.empty_like(vectors)
    layout.unload(rows, back)
    assert torch.equal(back, vectors)
    layout.load(rows, vectors[0])
    assert torch.equal(rows[2], rows[0])
    assert len(layout._segments) == 3  # neighbours are copied together


def test_chunks_and_steps_per_graph():
    assert [[part.stop - part.start for part in even_chunks(n, 16)] for n in (1, 16, 17, 40)] == [
        [1],
        [16],
        [8, 9],
        [13, 13, 14],
    ]
    assert [graph_steps(K, unequal=False) for K in (1, 32, 33, 100)] == [1, 32, 17, 25]
    assert [graph_steps(K, unequal=True) for K in (1, 3, 100)] == [1, 4, 8]


def test_precisions():
    assert Options(rounds=1, local_steps=1, eta_l=0.1, precision="bf16").precision == "bf16"
