"""Local epochs, gradient clipping and weight decay: what they mean, and the same in every engine."""

import sys

import nets
import numpy as np
import pytest
import torch
from problems import noisy
from test_engines import graph_engine as graph_engine
from torch import nn

from fedsum import (
    FOCUS,
    SCAFFOLD,
    Explicit,
    FedAvg,
    FedDyn,
    FedProx,
    FedSUM,
    Independent,
    InputError,
    ServerOpt,
    Uniform,
    simulate,
)
from fedsum.engine.kernels import networks
from fedsum.engine.processes import WorkerEngine
from fedsum.engine.regularised import Regularised
from fedsum.flower.protocol import Ledger, MergeRules, Order, answer
from fedsum.flower.storage import ClientStore
from fedsum.flower.transport.wire import from_order, to_order
from fedsum.tasks import Task
from fedsum.training import Options, step_counts

SIZES = [3, 8, 20, 9, 40]
N = len(SIZES)
OPTIONS = {"rounds": 6, "local_epochs": 2, "eta_l": 0.1, "batch_size": 4, "seed": 1, "dtype": torch.float64}


@pytest.fixture(scope="module")
def task():
    draw = torch.Generator().manual_seed(0)
    data = [(torch.randn(n, 3, generator=draw), torch.randint(2, (n,), generator=draw)) for n in SIZES]
    return Task(lambda: nn.Linear(3, 2), nn.functional.cross_entropy, data)


def run(task, algorithm, **options):
    options = OPTIONS | options
    if "local_steps" in options:
        del options["local_epochs"]
    return simulate(
        task, algorithm, options.pop("schedule", Independent(N, 0.5)), eval_every=options["rounds"], **options
    )


def test_a_client_takes_its_own_number_of_steps(task):
    options = {name: value for name, value in OPTIONS.items() if name != "rounds"}
    assert step_counts(task, Options(rounds=1, **options)).tolist() == [2, 4, 10, 5, 20]
    x0 = task.init(1).double()
    history = run(task, FedAvg(), rounds=1, schedule=Explicit(N, [[0, 4]]))
    moved = []
    for client in (0, 4):
        x = x0.clone()
        for batch in task.batches(1, 0, client, {0: 2, 4: 20}[client], 4):
            x = x - 0.1 * task.to(torch.device("cpu"), torch.float64).gradient(x, client, batch)
        moved.append(x - x0)
    torch.testing.assert_close(history.x, x0 + sum(moved) / 2, rtol=0, atol=1e-12)


def test_algorithms_with_one_stride_use_mean_gradients_and_the_mean_number_of_steps(task):
    """FedSUM's y is the sum of mean gradients, and its server step has the length eta_l mean K_i / N."""
    history = run(task, FedSUM(), rounds=1, schedule=Explicit(N, [[0, 4]]))
    h = [history.clients[client]["h"] for client in (0, 4)]
    torch.testing.assert_close(history.server["y"], h[0] + h[1], rtol=0, atol=1e-12)
    stride = 0.1 * np.mean([2, 4, 10, 5, 20]) / N
    torch.testing.assert_close(history.x, task.init(1).double() - stride * history.server["y"], rtol=0, atol=1e-12)


def test_equal_clients_and_epochs_are_steps():
    draw = torch.Generator().manual_seed(0)
    data = [(torch.randn(8, 3, generator=draw), torch.randint(2, (8,), generator=draw)) for _ in range(N)]
    task = Task(lambda: nn.Linear(3, 2), nn.functional.cross_entropy, data)
    shared = {"rounds": 3, "eta_l": 0.1, "batch_size": 4, "dtype": torch.float64, "eval_every": 3}
    for algorithm in (FedSUM(), FedDyn()):
        epochs, steps = (
            simulate(task, algorithm, Uniform(task.n, 3), **kind, **shared).x
            for kind in ({"local_epochs": 1}, {"local_steps": 2})
        )
        assert torch.equal(epochs, steps)


EVERY = [FedAvg(), FedSUM(), SCAFFOLD(), FOCUS(), FedProx(mu=0.5)]


@pytest.mark.parametrize("algorithm", EVERY, ids=lambda a: a.name)
@pytest.mark.parametrize("extra", [{}, {"clip_norm": 0.3, "weight_decay": 0.05}], ids=["plain", "regularised"])
def test_engines_agree(algorithm, extra, task, graph_engine, monkeypatch):
    loop = run(task, algorithm, engine="loop", **extra).x
    captured = run(task, algorithm, engine="batched", **extra).x  # CUDA's engine, without CUDA
    assert (captured - loop).norm() <= 1e-10 * loop.norm()
    monkeypatch.undo()
    stacked = run(task, algorithm, engine="batched", **extra).x
    assert (stacked - loop).norm() <= 1e-10 * loop.norm()
    if extra:
        assert (run(task, algorithm, engine="loop").x - loop).norm() > 1e-3 * loop.norm()


def test_workers_take_each_clients_own_steps(task):
    counts = np.array([2, 4, 10, 5, 20])
    bound = Regularised(task.to(torch.device("cpu"), torch.float64), 0.3, 0.05)
    engine = WorkerEngine(bound, 1, counts, 4, 1)
    try:
        monkey = pytest.MonkeyPatch()
        with monkey.context() as patch:
            patch.setattr(sys.modules["fedsum.training.training_loop"], "choose_engine", lambda *a, **k: engine)
            extra = {"clip_norm": 0.3, "weight_decay": 0.05}
            found = run(task, FedAvg(), **extra).x
        assert torch.equal(found, run(task, FedAvg(), engine="loop", **extra).x)
    finally:
        engine.close()


def test_one_step_with_clipping_and_weight_decay(task):
    """g <- g min(1, clip / ||g||) + decay x, as torch's SGD after clip_grad_norm_."""
    start = task.init(1)
    model = nn.Linear(3, 2)
    nn.utils.vector_to_parameters(start, model.parameters())
    inputs, targets = task.samples(task.batches(1, 0, 2, 1, 4)[0])
    nn.functional.cross_entropy(model(inputs), targets).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.2)
    assert norm > 0.2
    torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.05).step()
    expected = nn.utils.parameters_to_vector(model.parameters())
    options = {"rounds": 1, "local_steps": 1, "schedule": Explicit(N, [[2]]), "dtype": torch.float32}
    history = run(task, FedAvg(), clip_norm=0.2, weight_decay=0.05, **options)
    torch.testing.assert_close(history.x, expected.detach(), rtol=1e-5, atol=1e-6)
    small = run(task, FedAvg(), clip_norm=100.0, **options).x
    torch.testing.assert_close(small, run(task, FedAvg(), **options).x, rtol=1e-6, atol=1e-7)


@pytest.mark.skipif(torch.cuda.is_available(), reason="triton is interpreted only where there is no GPU")
def test_our_kernels_clip_decay_and_count(monkeypatch):
    pytest.importorskip("triton")
    from fedsum.engine.kernels import conv_pool

    monkeypatch.setattr(networks, "kernels_allowed", lambda device, dtype: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *device: (2**40, 2**40))
    monkeypatch.setattr(conv_pool, "_SHARES", {1: 2, 6: 2})  # fewer to interpret
    task = nets.task(weights="samples")
    clients = torch.arange(3)
    start = torch.stack([task.init(seed) for seed in range(3)])
    batches = torch.stack([task.batches(0, 0, client, 3, 4) for client in range(3)], dim=1)
    correction, step, counts = torch.zeros_like(start), torch.tensor(0.3), torch.tensor([3, 1, 2])
    one_step = networks.steps(task)
    extra = Regularised(task, 0.5, 0.1)
    x, total, finished = start, torch.zeros_like(start), torch.zeros_like(start)
    for k in range(3):
        g = extra.regularise(one_step(x, correction, torch.tensor(0.0), clients, batches[k : k + 1]), x)
        x, total = x - 0.3 * g, total + g
        finished[counts == k + 1] = total[counts == k + 1]
    ours = networks.steps(extra)(start, correction, step, clients, batches, counts=counts)
    torch.testing.assert_close(ours, finished, rtol=1e-3, atol=1e-5)


def test_a_deployment_clips_and_decays_as_the_simulation(tmp_path):
    task = noisy()
    options = {"rounds": 3, "local_steps": 2, "eta_l": 0.05, "clip_norm": 0.7, "weight_decay": 0.1}
    ledger = Ledger(FedSUM(), task.init(0), task.n, Options(**options), MergeRules(norm_limit=0))
    stores = [ClientStore(str(tmp_path), ledger.state.job, i) for i in range(task.n)]
    for _ in range(3):
        for i in (0, 2, 5):
            order = to_order(from_order(ledger.order(i)))
            assert isinstance(order, Order)
            assert ledger.receive(answer(order, ledger.algorithm, task, stores[i])) is None
        ledger.close_round(3)
    run = simulate(task, FedSUM(), Explicit(task.n, [[0, 2, 5]] * 3), dtype=torch.float64, **options)
    torch.testing.assert_close(ledger.state.server["x"], run.x, rtol=1e-12, atol=1e-12)


def test_what_is_refused(task):
    for options, message in (
        ({"local_steps": None}, "local_steps = None: is required, or local_epochs"),
        ({"local_steps": 2, "local_epochs": 2}, "local_steps = 2: remove it, or local_epochs"),
        ({"local_epochs": 0}, "local_epochs = 0: a whole number from 1"),
        ({"local_steps": 1, "clip_norm": 0}, "clip_norm = 0"),
        ({"local_steps": 1, "weight_decay": -1}, "weight_decay = -1"),
    ):
        with pytest.raises(InputError, match=message):
            simulate(task, FedAvg(), Uniform(N, 2), rounds=1, eta_l=0.1, **options)
    with pytest.raises(InputError, match="clients would take 2 to 20 steps; use local_steps with FedDyn"):
        run(task, FedDyn())
    with pytest.raises(InputError, match="use local_steps with FedDyn"):
        run(task, ServerOpt(FedDyn()))
    with pytest.raises(InputError, match="client_sizes, which Shifted does not have; use local_steps"):
        simulate(noisy(), FedAvg(), Uniform(7, 2), rounds=1, eta_l=0.1, local_epochs=1)
    sized = noisy()
    sized.client_sizes = [3, 1, 0, 2, 1, 1, 1]
    with pytest.raises(InputError, match=r"task.client_sizes\[2\] = 0: at least one sample"):
        simulate(sized, FedAvg(), Uniform(7, 2), rounds=1, eta_l=0.1, local_epochs=1)
