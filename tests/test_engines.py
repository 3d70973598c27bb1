"""Every engine gives the results of engine/loop.py."""

import os
import sys

import nets
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import noisy

import fedsum
from fedsum import Explicit, FedAvg, FedSUM, Independent, InputError, Uniform, simulate
from fedsum.algorithms import ALGORITHMS
from fedsum.engine import StateBank, choose, graphs
from fedsum.engine.bank import blocks, state_bank
from fedsum.engine.graphs import CAPTURED, COMPILED, cover
from fedsum.engine.kernels import networks
from fedsum.engine.loop import LoopEngine
from fedsum.engine.processes import WorkerEngine

every_algorithm = pytest.mark.parametrize("algorithm", [cls() for cls in ALGORITHMS.values()], ids=lambda a: a.name)
buffers = graphs._Buffers
OPTIONS = {"rounds": 20, "local_steps": 3, "eta_l": 0.1, "batch_size": 8, "eval_every": 20, "seed": 1}


def final(algorithm, engine, *, dtype=torch.float64, task=None, schedule=None, **options):
    schedule = schedule or Independent(nets.N, 0.25)  # cohorts of any size, some empty
    return simulate(task or nets.task(), algorithm, schedule, engine=engine, dtype=dtype, **(OPTIONS | options)).x


@every_algorithm
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)], ids=["64", "32"])
def test_batched_agrees_with_the_loop(algorithm, dtype, tolerance):
    loop, batched = (final(algorithm, engine, dtype=dtype) for engine in ("loop", "batched"))
    assert (batched - loop).norm() <= tolerance * loop.norm()
    assert (loop - nets.task().init(1)).norm() > 1e-2


@every_algorithm
def test_batched_agrees_on_quadratics(algorithm):
    options = {"task": noisy(nets.N), "schedule": Independent(nets.N, 0.4)}
    loop, batched = (final(algorithm, engine, **options) for engine in ("loop", "batched"))
    assert (batched - loop).abs().max() < 1e-10


def test_more_clients_than_a_chunk_holds(monkeypatch):
    monkeypatch.setattr(sys.modules["fedsum.engine.stacked"], "_CHUNK", 2)
    loop, batched = (final(FedSUM(), engine, schedule=Uniform(nets.N, 5)) for engine in ("loop", "batched"))
    assert (batched - loop).abs().max() < 1e-10


@pytest.fixture(scope="module")
def shared_workers():
    """Two worker processes for all tests of this file, one engine per dtype, because starting them takes seconds."""
    made = {}

    def engine(dtype):
        if dtype not in made:
            task = nets.task().to(torch.device("cpu"), dtype)
            made[dtype] = WorkerEngine(task, OPTIONS["seed"], OPTIONS["local_steps"], OPTIONS["batch_size"], 2)
        return made[dtype]

    yield engine
    for workers in made.values():
        workers.close()


@every_algorithm
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["64", "32"])
def test_workers_give_the_loops_bits(algorithm, dtype, shared_workers, monkeypatch):
    loop = final(algorithm, "loop", dtype=dtype)
    engine = shared_workers(dtype)
    monkeypatch.setattr(engine, "close", lambda: None)
    monkeypatch.setattr(sys.modules["fedsum.training.training_loop"], "choose_engine", lambda *a, **k: engine)
    assert torch.equal(final(algorithm, "workers", dtype=dtype), loop)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_workers_does_not_matter(workers):
    task = nets.task(dropout=0.5)
    x0 = task.init(0)
    plan = fedsum.LocalPlan(x0, 0.1, torch.ones_like(x0))
    clients = np.array([0, 2, 3, 5, 8])
    reference = LoopEngine(task, 0, 3, 8)(plan, clients, 4)
    engine = WorkerEngine(task, 0, 3, 8, workers)
    try:
        assert torch.equal(engine(plan, clients, 4), reference)
        assert engine(plan, clients[:0], 5).shape == (0, len(x0))
    finally:
        engine.close()


def test_auto_hands_over_to_workers_only_where_they_pay(monkeypatch):
    made = []

    class Watched(WorkerEngine):
        def __init__(self, *job):
            made.append(job)
            super().__init__(*job)

    monkeypatch.setattr(choose, "WorkerEngine", Watched)
    monkeypatch.setattr(choose, "cores", lambda: 2)
    small = final(FedSUM(), "auto")
    assert made == []
    monkeypatch.setattr(choose, "_WORTH_STARTING", 0.0)
    assert torch.equal(final(FedSUM(), "auto", rounds=20), small)
    assert len(made) == 1
    monkeypatch.setattr(choose, "cores", lambda: 1)
    assert torch.equal(final(FedSUM(), "auto"), small)
    assert len(made) == 1


def test_dropout_is_keyed_in_every_engine():
    for engine in ("loop", "batched"):
        one, two = (final(FedAvg(), engine, task=nets.task(dropout=0.5)) for _ in range(2))
        assert torch.equal(one, two)
        assert not torch.equal(one, final(FedAvg(), engine, task=nets.task(dropout=0.5), seed=2))
        assert not torch.equal(one, final(FedAvg(), engine))


def test_dropout_leaves_the_users_generator_alone():
    torch.manual_seed(9)
    before = torch.get_rng_state()
    for engine in ("loop", "batched"):
        final(FedAvg(), engine, task=nets.task(dropout=0.5), rounds=2)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("engine", ["loop", "batched"])
def test_clients_have_masks_of_their_own(engine):
    data = nets.images()
    same = [(data.inputs[:1].expand(8, -1, -1, -1), data.targets[:1].expand(8))] * nets.N
    task = fedsum.tasks.Task(
        lambda: nets.convolutional(0.5),
        torch.nn.functional.cross_entropy,
        same,
        prepare=lambda x, dtype: x.to(dtype),
    )
    # All samples are equal: without dropout, or with the same masks, all clients would report the same gradient.
    history = simulate(
        task,
        FedSUM(),
        Explicit(nets.N, [[0, 1]]),
        rounds=1,
        local_steps=1,
        eta_l=0.1,
        batch_size=8,
        engine=engine,
    )
    assert (history.clients[0]["h"] - history.clients[1]["h"]).abs().max() > 1e-3


@pytest.fixture
def graph_engine(monkeypatch):
    """CUDA's engine on a CPU: steps are computed where a graph would be replayed, and nothing is compiled."""

    def captured(steps, views, pool):
        return lambda: views.total.copy_(steps(*views.state, views.batches, *views.scalars, counts=views.counts))

    monkeypatch.setattr(graphs, "_captured", captured)
    monkeypatch.setattr(torch, "compile", lambda call, **options: call)
    for name, value in {"graph_pool_handle": None, "memory_allocated": 0, "max_memory_allocated": 1}.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    room = {}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *device: (room.get("bytes", 2**40), 2**40))
    monkeypatch.setattr(choose, "BatchedEngine", graphs.GraphEngine)
    return room


@every_algorithm
def test_graphs_agree_with_the_loop(algorithm, graph_engine):
    options = {"task": nets.task(), "schedule": Independent(nets.N, 0.4)}
    loop, batched = (final(algorithm, engine, **options) for engine in ("loop", "batched"))
    assert (batched - loop).norm() <= 1e-10 * loop.norm()


@pytest.mark.parametrize(("first", "sizes"), [([0], [4, 8]), ([1, 2, 3, 4, 5, 6, 7], [8])])
def test_graphs_share_the_largest_buffers_so_far(first, sizes, graph_engine, monkeypatch):
    monkeypatch.setattr(graphs, "COMPILED", (1, 4, 8))
    sets = [first, [1, 2, 3, 4, 5, 6, 7], [], [2, 5], [0, 1, 2, 3, 4, 5, 6, 7, 8], [3], [0, 4, 8]] * 3
    made = []
    monkeypatch.setattr(graphs, "_Buffers", lambda size, *rest: made.append(size) or buffers(size, *rest))
    options = {"task": nets.task(weights="samples"), "schedule": Explicit(nets.N, sets), "rounds": len(sets)}
    loop, batched = (final(FedSUM(), engine, **options) for engine in ("loop", "batched"))
    assert (batched - loop).norm() <= 1e-10 * loop.norm()
    assert made == sizes


@pytest.mark.skipif(torch.cuda.is_available(), reason="triton is interpreted only where there is no GPU")
def test_graphs_of_our_kernels(graph_engine, monkeypatch):
    pytest.importorskip("triton")
    from fedsum.engine.kernels import conv_pool

    monkeypatch.setattr(conv_pool, "_SHARES", {1: 2, 6: 2})  # fewer to interpret
    monkeypatch.setattr(networks, "kernels_allowed", lambda device, dtype: True)
    options = {"task": nets.task(), "schedule": Uniform(nets.N, 5), "rounds": 2, "local_steps": 2}
    options["dtype"] = torch.float32
    loop, batched = (final(FedSUM(), engine, **options) for engine in ("loop", "batched"))
    assert 0 < (batched - loop).norm() <= 1e-3 * loop.norm()


def test_a_later_run_of_the_same_task_finds_its_graphs(graph_engine):
    class OnCpu(fedsum.tasks.Task):
        def to(self, device, dtype):
            return super().to(torch.device("cpu"), dtype)

    task = OnCpu(nets.convolutional, torch.nn.functional.cross_entropy, nets.images())

    def graphs_of_a_run(K):
        bound = fedsum.engine.bound_task(task, torch.device("cuda"), torch.float32)
        return graphs.GraphEngine(bound, 0, K, 8)._graphs(K)

    one = graphs_of_a_run(K=3)
    assert graphs_of_a_run(K=3) is one
    assert graphs_of_a_run(K=2) is not one
    task.targets = task.targets.clone()
    assert graphs_of_a_run(K=3) is not one


def test_graphs_where_only_one_client_fits(graph_engine):
    graph_engine["bytes"] = 0
    options = {"task": nets.task(), "schedule": Uniform(nets.N, 3), "rounds": 3}
    loop, batched = (final(FedSUM(), engine, **options) for engine in ("loop", "batched"))
    assert (batched - loop).norm() <= 1e-10 * loop.norm()


@given(st.integers(0, 300), st.sampled_from([COMPILED, CAPTURED]), st.data())
def test_cover_holds_everybody_and_wastes_little(clients, all_sizes, data):
    sizes = all_sizes[: data.draw(st.integers(1, len(all_sizes)))]  # the sizes that fit in memory
    chunks = cover(clients, sizes)
    assert sum(chunks) >= clients
    assert all(size in sizes for size in chunks)
    assert sum(chunks) - clients <= 4 + 0.15 * clients
    assert sum(chunks[:-1]) < max(1, clients)  # no chunk without a client


@pytest.mark.parametrize("room", ["memory", "file"])
def test_bank_keeps_every_state_wherever_it_lies(room, monkeypatch):
    if room == "file":
        monkeypatch.setattr(blocks, "host_memory_free", lambda: 0)
    monkeypatch.setattr(state_bank, "_LARGEST", 16 * 24)
    draw = np.random.default_rng(0)
    kept = StateBank({"h": torch.full((2,), 7.0), "last": torch.tensor(-1)})
    twin = {}
    for t in range(40):
        ids = np.sort(draw.choice(1000, draw.integers(0, 9), replace=False))
        cohort = kept.gather(ids)
        for row, i in enumerate(ids.tolist()):
            before = twin.get(i, (torch.full((2,), 7.0), torch.tensor(-1)))
            assert torch.equal(cohort["h"][row], before[0])
            assert torch.equal(cohort["last"][row], before[1])
            twin[i] = (before[0] + t, torch.tensor(t))
        kept.scatter(ids, {"h": cohort["h"] + t, "last": torch.full_like(cohort["last"], t)})
    assert list(kept) == sorted(twin)
    assert all(torch.equal(kept[i]["h"], twin[i][0]) for i in twin)
    mean = (sum(h for h, _ in twin.values()) + (2000 - len(twin)) * torch.full((2,), 7.0)) / 2000
    assert torch.allclose(kept.mean("h", 2000), mean)


@pytest.mark.skipif(not os.path.exists("/proc/meminfo"), reason="needs /proc")
def test_free_host_memory_is_what_the_kernel_says():
    with open("/proc/meminfo") as file:
        available = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) * 1024
    assert blocks.host_memory_free() == pytest.approx(available, rel=0.2)


def test_bank_memory_follows_the_clients_seen():
    kept = StateBank({"h": torch.zeros(1000)})
    for first in range(0, 300, 20):
        kept.gather(np.arange(first, first + 20) * 3000)
    assert kept._rows <= 2 * len(kept) + 8


def test_engine_names():
    with pytest.raises(InputError, match="did you mean 'batched'"):
        final(FedSUM(), "bached")
    with pytest.raises(InputError, match=r"did you mean 'bf16'\? known: bf16, fp32, tf32"):
        final(FedSUM(), "loop", precision="fp16")
