"""Learning rates that people can use: curvature, stability limits, `fedsum delays` and `fedsum tune`."""

import dataclasses
import json
import tomllib
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest
import torch

import fedsum
from fedsum import InputError, theory
from fedsum.report import measure, rate_advice
from fedsum.runs import Run
from fedsum.runs.tuning import Search
from fedsum.tasks import Curvature, Quadratic, Task, curvature
from fedsum.training.rates import dump_rate, parse_rate, rate_values


def test_curvature_is_the_largest_eigenvalue():
    draw = np.random.default_rng(0)
    matrices = [a @ a.T for a in draw.normal(size=(6, 4, 4))]
    found = curvature(Quadratic(np.stack(matrices), draw.normal(size=(6, 4))))
    assert found.client == pytest.approx(np.mean([np.linalg.eigvalsh(m)[-1] for m in matrices]), rel=1e-3)
    assert found.mean_loss == pytest.approx(np.linalg.eigvalsh(np.mean(matrices, 0))[-1], rel=1e-3)


def test_curvature_reports_its_progress():
    shares = []
    task = Quadratic.random(5, 3)
    assert curvature(task, clients=3, on_progress=shares.append) == curvature(task, clients=3)
    assert shares == sorted(shares)
    assert (len(shares), shares[-1]) == (4 * 40, 1.0)  # 20 iterations of two points, of each client and of their mean


def test_curvature_of_a_network_agrees_with_its_hessian():
    draw = torch.Generator().manual_seed(0)
    data = [(torch.randn(20, 3, generator=draw), torch.randint(2, (20,), generator=draw)) for _ in range(2)]
    model = lambda: torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))  # noqa: E731
    task = Task(model, torch.nn.functional.cross_entropy, data).to(torch.device("cpu"), torch.float64)
    batches = [task.batches(0, 0, client, 1, 20)[0] for client in range(2)]

    def hessian(client):
        columns = []
        x = task.init(0)
        for unit in torch.eye(len(x), dtype=torch.float64) * 1e-4:
            one, other = (task.gradient(x + step, client, batches[client]) for step in (unit, -unit))
            columns.append((one - other) / 2e-4)
        return torch.stack(columns)

    tops = [torch.linalg.eigvalsh((h + h.T) / 2).abs().max().item() for h in map(hessian, range(2))]
    assert curvature(task, batch_size=20).client == pytest.approx(np.mean(tops), rel=0.02)


def test_curvature_with_dropout_and_without_any_curvature():
    draw = torch.Generator().manual_seed(0)
    data = [(torch.randn(20, 3, generator=draw), torch.randint(2, (20,), generator=draw)) for _ in range(2)]
    layers = torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)
    loss = torch.nn.functional.cross_entropy
    task = Task(torch.nn.Sequential(*layers), loss, data)
    torch.manual_seed(1)
    found = curvature(task)
    torch.manual_seed(2)
    assert curvature(task) == found  # the masks do not depend on the caller's generator
    assert 0 < found.client < 20  # and are the same for both gradients
    flat = Task(torch.nn.Linear(3, 2), lambda outputs, targets: 0.0 * (outputs**2).sum(), data)
    assert curvature(flat) == Curvature(0.0, 0.0)


@pytest.mark.parametrize(
    ("schedule", "limit"),
    # The predictions of docs/theory.md, for K = 10.
    [
        (fedsum.Uniform(100, 100), 1.05),
        (fedsum.Independent(100, 0.5), 3.16),
        (fedsum.Independent(100, 0.2), 9.47),
        (fedsum.Uniform(100, 20), 9.47),
        (fedsum.Cyclic(100, 20), 1.15),
    ],
)
def test_the_limit_for_measured_ages_is_the_predicted_one(schedule, limit):
    ages = measure(schedule, range(1500), seed=0).ages
    assert ages.sum() == pytest.approx(1)
    assert theory.stability_limit(ages, K=10) == pytest.approx(limit, rel=0.03)
    advice = rate_advice(ages, K=10, L=Curvature(2.0, 0.5))
    assert advice["FedSUM"]["eta_l"] == pytest.approx(limit / 40, rel=0.03)
    assert (advice["SCAFFOLD"]["eta_l"], advice["FedAvg"]["eta_l"]) == (0.5, 2.0)
    fedsum_b = theory.stability_limit(ages, K=10, follows_sum=False) / 40
    assert advice["FedSUM-B"]["eta_l"] == pytest.approx(fedsum_b)
    assert advice["FedSUM-CR"]["eta_l"] == min(advice["FedSUM"]["eta_l"], advice["FedSUM-B"]["eta_l"])


def test_the_limit_of_a_record_with_a_rhythm_is_that_of_its_own_rounds():
    """Clients are active by day only. FedSUM is unstable far below the limit that takes ages as independent."""
    draw, day = np.random.default_rng(0), 24
    sets = [np.sort(draw.choice(40, 6, replace=False)) if t % day < 8 else np.arange(0) for t in range(10 * day)]
    record = [ids.tolist() for ids in sets]
    ages = measure(fedsum.Explicit(40, record), range(len(sets)), seed=0).ages
    limit = theory.stability_limit(ages, K=5)
    recorded = theory.recorded_limit(sets, 40, K=5, limit=limit)
    assert recorded < 0.3 * limit
    task, repeated = fedsum.tasks.Quadratic([[1.0]] * 40, [[1.0]] * 40), fedsum.Explicit(40, 3 * record)
    for step, shrinks in ((0.9 * recorded, True), (1.5 * recorded, False)):
        options = {"rounds": len(sets) * 3, "local_steps": 5, "eta_l": step / 5, "eval_every": len(sets)}
        errors = fedsum.simulate(task, fedsum.FedSUM(), repeated, dtype=torch.float64, **options).metrics["error"]
        assert (errors.iloc[-1] < 0.1 * errors.iloc[1]) == shrinks
        assert (errors.iloc[-1] > 10 * errors.iloc[1]) != shrinks
    advice = rate_advice(ages, K=5, L=Curvature(1.0, 1.0), sets=sets, n=40)
    assert advice["FedSUM"]["limit"] == pytest.approx(recorded / 5)
    assert advice["FedSUM-B"]["limit"] < 0.5 * theory.stability_limit(ages, K=5, follows_sum=False) / 5
    random = [fedsum.Uniform(40, 8).active(0, t) for t in range(1000)]  # without a rhythm nothing changes
    assert theory.recorded_limit(random, 40, K=5, limit=5.0) == 5.0


def test_ages_are_counted():
    schedule = fedsum.Explicit(3, [[0, 1], [0], [1], []])  # ages of 0: 0, 0, 1, 2; of 1: 0, 1, 0, 1
    assert measure(schedule, range(4), seed=0).ages.tolist() == [4 / 8, 3 / 8, 1 / 8, 0]
    with pytest.raises(InputError, match="ages"):
        theory.stability_limit([0.0], K=2)


def test_delays_advises_rates_beside_the_worst_case(fedsum, tmp_path):
    code, out, _ = fedsum("delays", "independent", "--p", 0.2, "--rounds", 400)
    assert (code, "(worst case)" in out, "Rates to start with" in out) == (0, True, True)
    assert "0.2/L" in out.replace("0.200/L", "0.2/L") or "/L" in out
    quadratic = 'task = {name = "quadratic", n = 10, d = 3, noise = 0.0}\nalgorithm = "FedSUM"\nschedule = "Biased"\n'
    (tmp_path / "one.toml").write_text(f"rounds = 9\nlocal_steps = 4\neta_l = 0.1\n{quadratic}")
    code, out, _ = fedsum("delays", "uniform", "--n", 10, "--size", 2, "--rounds", 60, "--task", "one.toml", "--json")
    found = json.loads(out)
    assert (code, found["K"], found["L"] > found["L_mean_loss"] > 0) == (0, 4, True)
    assert found["advice"]["FedSUM"]["eta_l"] > 10 * found["eta_l"]
    swept = (tmp_path / "one.toml").read_text().replace('algorithm = "FedSUM"\n', "")
    (tmp_path / "sweep.toml").write_text(swept + '[sweep]\nalgorithm = ["FedSUM", "FedAvg"]\n')
    code, out, _ = fedsum("delays", "uniform", "--n", 10, "--size", 2, "--rounds", 60, "--task", "sweep.toml", "--json")
    assert (code, json.loads(out)) == (0, found)
    code, _, error = fedsum("delays", "uniform", "--task", "digit")
    assert (code, "did you mean 'digits'" in error) == (2, True)


def test_delays_takes_a_users_task_and_passes_the_clients_only_if_it_takes_them(fedsum, tmp_path):
    text = """
from fedsum.tasks import Quadratic

def hospitals(part="validation"):
    return Quadratic.random(6, 3)

def shops(clients):
    return Quadratic.random(clients, clients)
"""
    (tmp_path / "mine.py").write_text(text)
    pattern = ("delays", "cyclic", "--n", 6, "--size", 2, "--rounds", 20, "--json")
    code, out, error = fedsum(*pattern, "--task", "mine.py:hospitals")
    assert (code, json.loads(out)["L"] > 0) == (0, True), error
    code, out, error = fedsum(*pattern, "--task", "mine.py:shops")
    assert (code, json.loads(out)["L"] > 0) == (0, True), error
    code, _, error = fedsum("delays", "cyclic", "--n", 3000, "--size", 2, "--rounds", 20, "--task", "digits")
    assert (code, "task.clients = 3000: " in error, "; the schedule has 3000 clients" in error) == (2, True, True), (
        error
    )


def test_a_loss_without_curvature_gives_no_rates(fedsum, tmp_path):
    text = """
import torch
from fedsum.tasks import Task

def incomes():
    inputs = 1e6 * torch.ones(8, 1)
    loss = lambda outputs, y: torch.sigmoid(outputs[:, 0]).mean()  # saturated
    return Task(torch.nn.Linear(1, 1), loss, [(inputs, torch.zeros(8))] * 6, prepare=lambda x, dtype: x.to(dtype))
"""
    (tmp_path / "mine.py").write_text(text)
    pattern = ("delays", "cyclic", "--n", 6, "--size", 2, "--rounds", 20, "--task", "mine.py:incomes")
    code, _, error = fedsum(*pattern)
    assert (code, "curvature of its loss at the initial model is 0" in error, "scale them" in error) == (2, True, True)
    assert fedsum(*pattern, "--L", 2)[0] == 0


def test_delays_takes_only_the_task_from_a_settings_file(fedsum, tmp_path):
    (tmp_path / "log.csv").write_text("round,client\n0,a\n1,b\n2,c\n")
    quadratic = 'task = {name = "quadratic", n = 3, d = 3}\nalgorithm = "FedSUM"\n'
    trace = 'schedule = {name = "Trace", path = "log.csv"}\n'
    (tmp_path / "mine.toml").write_text(f"rounds = 168\nlocal_steps = 4\neta_l = 0.1\n{quadratic}{trace}")
    code, out, error = fedsum("delays", "log.csv", "--task", "mine.toml", "--json")
    assert (code, json.loads(out or "{}").get("K")) == (0, 4), error
    (tmp_path / "none.toml").write_text("rounds = 168\nlocal_steps = 4\neta_l = 0.1\n")
    code, _, error = fedsum("delays", "log.csv", "--task", "none.toml")
    assert (code, "task = None: is required" in error) == (2, True)


def test_delays_of_a_users_schedule(fedsum, tmp_path):
    text = """
import numpy as np
from fedsum.participation import Pattern

class Weekdays:
    def __init__(self, n, rest=2):
        self.n, self.rest = n, rest
    def active(self, seed, round):
        return np.arange(self.n if round % 7 < 7 - self.rest else 0)
    def describe(self, rounds=None):
        return Pattern(N=self.n)
"""
    (tmp_path / "mine.py").write_text(text)
    code, out, error = fedsum("delays", "mine.py:Weekdays", "--n", 5, "--rounds", 14, "--json")
    assert (code, json.loads(out)["empty_rounds"], json.loads(out)["tau_max"]) == (0, 4, 2), error
    code, _, error = fedsum("delays", "mine.py:Weekday")
    assert (code, "mine.py:Weekday" in error) == (2, True)
    code, _, error = fedsum("delays", "mine.py:Weekdays", "--size", 3)
    assert (code, "no such field" in error) == (2, True)


TUNED = """
rounds = 45
local_steps = 4
eta_l = 0.02
eval_every = 5
task = {name = "quadratic", n = 8, d = 3, noise = 0.05}
schedule = {name = "Biased", group = 2}
[sweep]
algorithm = ["FedSUM", "FedAvg"]
seed = [0, 1]
"""


class ThisProcess:
    """A pool without worker processes, which take seconds to start."""

    width, shared = 1, False

    def __init__(self, jobs):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def submit(self, call, *arguments, **options):
        future = Future()
        future.set_result(call(*arguments, **options))
        return future


@pytest.fixture
def this_process(monkeypatch):
    monkeypatch.setattr("fedsum.cli.tune_command.LocalPool", ThisProcess)


def test_tune_extends_the_best_rates_of_each_algorithm(fedsum, tmp_path, this_process):
    (tmp_path / "base.toml").write_text(TUNED.replace("seed = [0, 1]", ""))
    command = ("tune", "base.toml", "--by", "error", "--span", 3)
    code, out, error = fedsum(*command, "--json")
    assert code == 0, error
    found = json.loads(out)
    rounds = sorted(run["round"] for run in found["runs"].values())
    assert (len(rounds), rounds.count(15), rounds.count(45)) == (14, 8, 6)
    # Runs were extended, with the bits of runs that were long from the start.
    label, chosen = next(iter(found["best"].items()))
    eta_l = chosen["settings"]["eta_l"]
    one = TUNED.partition("[sweep]")[0].replace("eta_l = 0.02", f"eta_l = {eta_l}") + f'algorithm = "{label}"\n'
    (tmp_path / "one.toml").write_text(one)
    assert fedsum("run", "one.toml", "--folder", "whole")[0] == 0
    tuned = Run.read(tmp_path / f"runs/base-tune/{label},eta_l={eta_l},seed=0")
    assert [row["error"] for row in tuned.rows] == [row["error"] for row in Run.read(tmp_path / "whole").rows]
    written = tomllib.loads((tmp_path / "runs/base-tune/tuned.toml").read_text())
    assert written["sweep"]["algorithm, eta_l"] == [
        [a, chosen["settings"]["eta_l"]] for a, chosen in found["best"].items()
    ]
    # Again: nothing is trained.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs/base-tune").glob("*/metrics.csv")}
    code, out, _ = fedsum(*command)
    assert (code, "best eta_l of each algorithm" in out) == (0, True)
    assert before == {path: path.stat().st_mtime_ns for path in before}
    assert not list((tmp_path / "runs/base-tune").glob("*/checkpoint*"))


@pytest.mark.slow
def test_tune_is_near_the_best_of_a_full_grid(fedsum, tmp_path):
    (tmp_path / "base.toml").write_text(TUNED)
    found = json.loads(fedsum("tune", "base.toml", "--by", "error", "--span", 3, "--json")[1])
    rates = Search.of(tomllib.loads(TUNED), 3).rates
    (tmp_path / "grid.toml").write_text(TUNED + f"eta_l = {json.dumps(rates)}\n")
    code, out, _ = fedsum("grid", "grid.toml", "--by", "error", "--json")
    for label, best in json.loads(out)["best"].items():
        assert found["best"][label]["error"] <= 2.5 * best["error"]
    code, out, _ = fedsum("run", "runs/base-tune/tuned.toml", "--set", "sweep.seed=[5]", "--json")
    assert (code, len(json.loads(out)["runs"])) == (0, 2)


OWN_METRIC = """
from fedsum.tasks import Quadratic

class Own(Quadratic):
    def evaluate(self, x):
        return super().evaluate(x) | {"own": float(x.norm())}

def task():
    whole = Quadratic.random(8, 3)
    return Own(whole.curvature, whole.centers)
"""


def test_the_metric_is_checked_before_the_first_run(fedsum, tmp_path):
    (tmp_path / "own.py").write_text(OWN_METRIC)
    (tmp_path / "own.toml").write_text(
        TUNED.replace('{name = "quadratic", n = 8, d = 3, noise = 0.05}', '"own.py:task"')
    )
    for options, message in (
        ([], "by = 'test_accuracy': "),  # the default, which this task does not log
        (["--by", "eror"], "by = 'eror': did you mean 'error'?"),
        (["--by", "client_loss_mean"], "by = 'client_loss_mean': "),  # only with per_client
        (["--by", "own"], "by = 'own': nothing states whether higher or lower is better"),
        (["--by", "error", "--better", "higher"], "better = 'higher': leave it out"),
        (["--by", "own", "--better", "up"], "better = 'up'"),
    ):
        for command in ("tune", "grid"):
            code, _, error = fedsum(command, "own.toml", *options)
            assert (code, message in error, error.count("\n")) == (2, True, 1), error
    assert not (tmp_path / "runs").exists()


def test_tune_ends_if_a_run_fails(fedsum, tmp_path, this_process):
    fails = "    def gradient(self, x, client, batch):\n        raise ValueError('no gradient')\n\n    def evaluate("
    (tmp_path / "own.py").write_text(OWN_METRIC.replace("    def evaluate(", fails))
    text = TUNED.replace('{name = "quadratic", n = 8, d = 3, noise = 0.05}', '"own.py:task"')
    (tmp_path / "own.toml").write_text(text.replace('"FedSUM", "FedAvg"', '"FedAvg"').replace("[0, 1]", "[0]"))
    code, _, error = fedsum("tune", "own.toml", "--by", "error", "--span", 1)
    assert (code, "failed: ValueError: no gradient" in error) == (1, True)
    assert not (tmp_path / "runs/own-tune/tuned.toml").exists()


def test_tune_says_that_a_rate_is_at_the_edge(fedsum, tmp_path, this_process):
    (tmp_path / "one.toml").write_text(TUNED.replace('"FedSUM", ', "").replace("0.02", "1e-5").replace("= 45", "= 5"))
    code, out, error = fedsum("tune", "one.toml", "--by", "error", "--span", 1)
    assert (code, "at the edge of the search" in error, "FedAvg" in out) == (0, True, True)
    tuned = tomllib.loads((tmp_path / "runs/one-tune/tuned.toml").read_text())
    assert (tuned["algorithm"], tuned["eta_l"]) == ("FedAvg", 2e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("eta_l = 0.02", "eta_l = [0.1, 0.2]"), "eta_l = .* a number, or a table with eta_0"),
        (("seed = [0, 1]", "eta_g = [0.5, 1.0]"), "sweep.eta_g = .* a search for rates sweeps only algorithm and seed"),
    ],
)
def test_searches_that_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        Search.of(tomllib.loads(TUNED.replace(*change)), 3)


def test_scores_of_a_search():
    """A diverged run is the worst, and a run that was extended counts up to the rounds of the stage."""
    search = Search.of(tomllib.loads(TUNED.replace('"FedSUM", "FedAvg"', '"FedSUM"').replace("[0, 1]", "[0]")), 1)
    planned = search.planned(0, Path("runs"))  # 15 of 45 rounds, at three rates
    rows = [{"round": t, "error": float(t)} for t in range(0, 50, 5)]
    states = ("diverged", "finished", "finished")
    runs = {p.name: Run(p.folder, state, rows=rows) for p, state in zip(planned, states, strict=True)}
    for better, value in (("lower", -15.0), ("higher", 15.0)):
        scores = search.scores(planned, runs, "error", better)["FedSUM"]
        assert list(scores.values()) == [-np.inf, value, value]
        assert search.survivors({"FedSUM": scores})["FedSUM"] == [search.rates[1]]
        assert search.value(value, better) == 15.0
        assert np.isnan(search.value(-np.inf, better))


def test_a_search_over_a_decaying_rate():
    table = tomllib.loads(TUNED.replace("eta_l = 0.02", 'eta_l = {name = "InverseSqrt", eta_0 = 0.1}'))
    search = Search.of(table, 1)
    assert (search.rate, search.rates, search.stages) == ("eta_l.eta_0", [0.05, 0.1, 0.2], [15, 45])
    for rounds, every, stages in (
        (50, 10, [10, 50]),
        (20, 10, [10, 20]),
        (5, 10, [5]),
    ):  # a stage ends with an evaluation
        assert Search.of(table | {"rounds": rounds, "eval_every": every}, 1).stages == stages


RATES = [
    (fedsum.Constant(0.3), lambda t: 0.3),
    (fedsum.InverseSqrt(0.3, over=5.0), lambda t: 0.3 / (t / 5 + 1) ** 0.5),
    (fedsum.Exponential(0.3, decay=0.9), lambda t: 0.3 * 0.9**t),
    (fedsum.Cosine(0.3, over=20, end=0.1), lambda t: 0.03 + 0.27 * (1 + np.cos(np.pi * min(t / 20, 1))) / 2),
    (fedsum.Step(0.3, every=7, drop=0.5), lambda t: 0.3 * 0.5 ** (t // 7)),
]


@pytest.mark.parametrize(("rate", "formula"), RATES, ids=lambda part: type(part).__name__)
def test_rates_by_name_with_a_warm_up(rate, formula):
    assert [rate(t) for t in range(30)] == pytest.approx([formula(t) for t in range(30)])
    warm = dataclasses.replace(rate, warmup=4)
    expected = [0.3 * (t + 1) / 5 for t in range(4)] + [formula(t) for t in range(26)]
    assert [warm(t) for t in range(30)] == pytest.approx(expected)
    for named in (rate, warm):
        table = dump_rate(named, 30)
        assert ("warmup" in table) == (named is warm)
        assert parse_rate(table) == named
        assert rate_values(table, 30) == [named(t) for t in range(30)]


def test_wrong_rates_are_refused():
    for make, message in (
        (lambda: fedsum.Constant(0), "eta_0 = 0: a finite number"),
        (lambda: fedsum.Cosine(warmup=-1), "warmup = -1: a whole number from 0"),
        (lambda: fedsum.Cosine(end=0), r"end = 0: a probability in \(0, 1\]"),
        (lambda: fedsum.Exponential(decay=1.1), "decay = 1.1"),
        (lambda: fedsum.Step(every=0), "every = 0"),
        (lambda: parse_rate({"name": "Cosin"}), "did you mean 'Cosine'"),
    ):
        with pytest.raises(InputError, match=message):
            make()
