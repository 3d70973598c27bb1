"""simulate(): what it returns, what it refuses, and that it can be repeated."""

import math
import time

import numpy as np
import pandas as pd
import pytest
import torch
from problems import N, noisy

from fedsum import Explicit, FedAWE, FedSUM, History, Independent, InputError, Uniform, simulate
from fedsum.tasks import Quadratic

BASE = {"rounds": 25, "local_steps": 3, "eta_l": 0.05}


def go(task=None, algorithm=None, schedule=None, **options):
    return simulate(task or noisy(), algorithm or FedSUM(), schedule or Uniform(N, 3), **(BASE | options))


def test_history():
    history = go()
    assert isinstance(history, History)
    metrics = history.metrics
    assert isinstance(metrics, pd.DataFrame)
    assert metrics["round"].tolist() == [0, 10, 20, 25]
    assert {"train_loss", "error", "communication", "bytes", "tau", "seconds"} <= set(metrics)
    assert metrics["communication"].tolist() == [0, 90, 180, 225]
    assert metrics["tau"].tolist() == [0, *history.delays.tau[[9, 19, 24]]]
    assert (metrics["seconds"].diff().dropna() > 0).all()
    assert torch.equal(history.x, history.server["x"])
    assert torch.equal(history.model(), history.x)
    assert history.x.dtype == torch.float32
    assert sorted(history.clients) == np.flatnonzero(history.delays.counts).tolist()


def test_the_last_rounds_can_be_evaluated_one_by_one():
    assert go(eval_every=20, eval_last=3).metrics["round"].tolist() == [0, 20, 23, 24, 25]


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    assert torch.equal(go(seed=5).x, go(seed=5).x)
    assert not torch.equal(go(seed=5).x, go(seed=6).x)


def test_on_round_sees_every_round():
    seen = []
    history = go(on_round=seen.append)
    assert [done.round for done in seen] == list(range(1, 26))
    assert [done.tau for done in seen] == history.delays.tau.tolist()
    assert [done.round for done in seen if done.metrics] == [10, 20, 25]
    assert seen[9].metrics is history.rows[1]
    assert all(len(done.active) == 3 for done in seen)


def test_who_else_takes_part_does_not_change_a_clients_gradients():
    alone = go(schedule=Explicit(N, [[2]]), rounds=1, dtype=torch.float64)
    together = go(schedule=Explicit(N, [[0, 2, 5]]), rounds=1, dtype=torch.float64)
    assert torch.equal(alone.clients[2]["h"], together.clients[2]["h"])


def test_fedawe_is_judged_by_the_mean_of_all_clients_models():
    task = noisy(noise=0.0)
    history = go(task, FedAWE(), Explicit(N, [[1, 4]]), rounds=1, dtype=torch.float64)
    models = [history.clients[i]["x"] if i in history.clients else task.init(0) for i in range(N)]
    mean = sum(models) / N
    last = history.rows[-1]
    assert last["train_loss"] == pytest.approx(task.evaluate(mean)["train_loss"])
    assert last["server_train_loss"] == pytest.approx(task.evaluate(history.x)["train_loss"])
    by_server = go(task, FedAWE(), Explicit(N, [[1, 4]]), rounds=1, dtype=torch.float64, eval_model="server")
    assert by_server.rows[-1]["train_loss"] == pytest.approx(last["server_train_loss"])


def test_plot_draws_what_the_task_measures():
    figure = go().plot()
    assert [ax.get_ylabel() for ax in figure.axes] == ["train loss", "distance to the optimum"]
    assert figure.axes[0].lines[0].get_xdata().tolist() == [0, 10, 20, 25]


@pytest.mark.parametrize("shape", ["diagonal", "full"])
def test_quadratic_knows_itself(shape):
    A = np.array([[1.0, 2.0], [3.0, 0.5]])
    c = np.array([[1.0, 1.0], [-1.0, 2.0]])
    task = Quadratic(A if shape == "diagonal" else np.stack([np.diag(a) for a in A]), torch.tensor(c), noise=2.0)
    assert torch.allclose(task.optimum, torch.tensor((A * c).sum(0) / A.sum(0)))
    assert (task.n, task.d, task.L) == (2, 2, 3.0)
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    loss = sum(((x - torch.tensor(c[i])) ** 2 * torch.tensor(A[i])).sum() / 2 for i in range(2)) / 2
    loss.backward()
    assert task.loss(x.detach()) == pytest.approx(loss.item())
    assert torch.allclose(task.exact_gradients(x.detach()).mean(0), x.grad)
    known = task.constants()
    assert known["Delta_f"] == pytest.approx(task.loss(x.detach()) - task.loss(task.optimum))
    assert known["F_0"] == pytest.approx(float(task.exact_gradients(x.detach()).square().sum(1).mean()))


def test_quadratic_noise_has_the_size_it_says():
    task = Quadratic(np.ones((1, 5)), np.zeros((1, 5)), noise=3.0)
    draws = torch.cat([task.batches(0, t, 0, 4, 1) for t in range(1000)])
    assert float(draws.square().sum(1).mean()) == pytest.approx(9.0, rel=0.05)
    assert draws.mean(0).abs().max() < 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 0}, "rounds = 0"),
        ({"local_steps": 1.5}, "local_steps = 1.5"),
        ({"eta_l": -0.1}, "eta_l = -0.1: a finite number greater than 0"),
        ({"eta_l": math.nan}, "eta_l = nan"),
        ({"eta_l": "fast"}, "eta_l = 'fast'"),
        ({"eta_l": lambda t: 0.1 - 0.02 * t}, "eta_l(5) ="),
        ({"eta_g": 0}, "eta_g = 0"),
        ({"batch_size": 0}, "batch_size = 0"),
        ({"seed": -1}, "seed = -1"),
        ({"eval_every": 0}, "eval_every = 0"),
        ({"eval_last": -1}, "eval_last = -1"),
        ({"seed": 2**64}, "seed = 18446744073709551616"),
        ({"eta_g": "0.5"}, "eta_g = '0.5'"),
        ({"eval_model": "client"}, "eval_model = 'client'"),
        ({"dtype": torch.int32}, "dtype = torch.int32"),
        ({"dtype": "float64"}, "dtype = 'float64'"),
        ({"device": "gpu"}, "device = 'gpu'"),
        ({"engine": None}, "engine = None"),
        ({"engine": "lop"}, "engine = 'lop': did you mean 'loop'?"),
        ({"schedule": Independent(N + 1, 0.5)}, f"schedule.n = {N + 1}: the task has {N} clients"),
        ({"eval_model": "clients"}, "eval_model = 'clients': FedSUM's clients have no model"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(options, message):
    with pytest.raises(InputError) as caught:
        go(**options)
    assert message in str(caught.value)


def test_a_class_in_place_of_an_object_is_refused():
    task = Quadratic.random(3, 2)
    with pytest.raises(InputError, match=r"algorithm = 'FedSUM': an object, not a class, such as FedSUM\(\.\.\.\)"):
        simulate(task, FedSUM, Uniform(3, 1), rounds=1, local_steps=1, eta_l=0.1)


@pytest.mark.parametrize("folder", [None, "run"])
def test_names_and_swapped_arguments_are_refused_with_the_way_out(folder, tmp_path):
    task, options = Quadratic.random(3, 2), {"rounds": 1, "local_steps": 1, "eta_l": 0.1}
    options["folder"] = folder and tmp_path / folder
    for algorithm, schedule, message in (
        ("FedSUM", Uniform(3, 1), "algorithm = 'FedSUM': an algorithm object, such as fedsum.FedSUM()"),
        (FedSUM(), "Uniform", "schedule = 'Uniform': a schedule object, such as fedsum.Uniform(3, 1)"),
        (
            Uniform(3, 1),
            FedSUM(),
            "algorithm = Uniform(n=3, size=1): this is a schedule; the arguments are (task, algorithm, schedule)",
        ),
    ):
        with pytest.raises(InputError) as caught:
            simulate(task, algorithm, schedule, **options)
        assert str(caught.value) == message
    assert not (tmp_path / "run").exists()


def test_a_list_of_rates_is_refused_with_the_way_out():
    with pytest.raises(InputError, match=r"eta_l = \[0.1, 0.05\]: .*fedsum.PerRound\(values\)"):
        go(eta_l=[0.1, 0.05])


def test_an_evaluation_without_the_train_loss_is_refused():
    class Unmeasured(Quadratic):
        def evaluate(self, x):
            return {"loss": self.loss(x)}

    with pytest.raises(InputError, match=r"evaluate = \['loss'\]: metrics with train_loss"):
        go(Unmeasured(np.ones((N, 2)), np.ones((N, 2))))


def test_a_schedule_that_breaks_its_word_is_caught():
    class Wrong(Uniform):
        def active(self, seed, round):
            return np.array([0, 0])

    with pytest.raises(InputError, match="client id given twice"):
        go(schedule=Wrong(N, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Quadratic([[1.0]], [1.0]), "centers of shape = (1,)"),
        (lambda: Quadratic([[1.0, 2.0]], [[1.0]]), "curvature of shape = (1, 2)"),
        (lambda: Quadratic([[[1.0, 1.0], [0.0, 1.0]]], [[1.0, 1.0]]), "symmetric matrices"),
        (lambda: Quadratic([[-1.0]], [[1.0]]), "curvature with eigenvalue = -1.0"),
        (lambda: Quadratic([[math.nan]], [[1.0]]), "finite numbers"),
        (lambda: Quadratic([["a"]], [[1.0]]), "an array of numbers"),
        (lambda: Quadratic([[1.0]], [[1.0]], noise=-1), "noise = -1"),
    ],
)
def test_quadratic_refuses(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)


def test_a_run_that_diverges_stops_and_keeps_what_it_has():
    largest = "tau_max = 5, theory guarantees that FedSUM converges up to eta_l = 0.00467 at eta_g = 1"
    with pytest.warns(UserWarning, match=f"FedSUM diverged by round .*{largest}"):
        history = go(eta_l=100.0, rounds=400)
    assert history.diverged == history.rows[-1]["round"] < 400
    assert math.isfinite(history.rows[-2]["train_loss"])
    assert len(history.delays.tau) == history.diverged
    assert go().diverged is None


def test_the_callers_time_is_not_training(monkeypatch):
    spent = 0.0

    def on_round(done):
        nonlocal spent
        spent += 1e6  # seconds, on a clock that the test moves

    real = time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: real() + spent)
    assert 0 < go(rounds=5, on_round=on_round).rows[-1]["seconds"] < 1e6


def test_cuda_where_there_is_none():
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="no CUDA device is available"):
            go(device="cuda")
