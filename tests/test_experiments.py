"""The paper's experiments: as data, and every figure at small scale."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sweeps import TASK, configured, measured, write_run

from fedsum import InputError
from fedsum.algorithms import ALGORITHMS
from fedsum.experiments import EXPERIMENTS, availability, deadline, drawing, experiment, phones
from fedsum.experiments.drawing import draw
from fedsum.report import read_runs
from fedsum.report.against_delay import delays, line, rank_correlation
from fedsum.runs import expand
from fedsum.tasks import Augment, load, sentences_at_hand


def full(name):
    return expand(experiment(name)[0], Path("there"))


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("algorithms", 72),
        ("async", 24),
        ("async-rates", 30),
        ("availability", 96),
        ("between", 12),
        ("bias", 6),
        ("cases", 15),
        ("compression", 21),
        ("deadline", 14),
        ("delays", 15),
        ("family", 81),
        ("grid", 12),
        ("heterogeneity", 3),
        ("kaiming", 72),
        ("markov", 15),
        ("methods", 96),
        ("methods-rates", 96),
        ("mistakes", 6),
        ("phones", 38),
        ("phones-rates", 36),
        ("probability", 15),
        ("resnet", 8),
        ("sensitivity", 32),
        ("sst2", 4),
        ("sst2-cure", 5),
        ("sst2-minilm", 4),
        ("sst2-rates", 4),
    ],
)
def test_how_many_runs(name, runs):
    assert len(full(name)) == runs


def test_they_are_all_counted_above():
    assert len(EXPERIMENTS) == 27


def test_the_papers_setting():
    run = next(run for run in full("algorithms") if run.name == "svhn,Sine,FedAWE,seed=0")
    options = run.spec.options
    assert (options.rounds, options.local_steps, options.batch_size, options.eta_g) == (2000, 10, 128, 1.0)
    assert options.record(30, 100, 10).eta_l == 0.005
    assert (run.table["task"]["clients"], run.table["task"]["alpha"]) == (100, 0.1)
    assert run.spec.schedule.make(100).describe().delta == pytest.approx(
        0.2 * (0.7 + 0.3 * math.sin(math.pi * 1.4)), 0.01
    )
    assert [run.spec.options.eta_l for run in full("probability")] == [0.01] * 15
    assert [run.spec.options.eta_l for run in full("family")] == [0.1] * 81
    products = {run.table["eta_l"]["eta_0"] * run.table["eta_g"] for run in full("grid")}
    assert max(products) == pytest.approx(min(products))
    assert {run.table["rounds"] for run in full("grid")} == {500}


def test_asynchronous_runs_take_the_same_simulated_time():
    """The synchronous runs are those that wait for all clients, for as many rounds as fit into the time."""
    for run in full("async"):
        schedule = run.spec.schedule.make(100).during(steps=5, down_bytes=500_000, up_bytes=250_000)
        end = schedule.time(0, run.spec.options.rounds - 1)
        assert 480 < end < 600, run.name  # up to the first evaluation after 480 s
    chosen, searched = (
        {(run.spec.algorithm.label, run.spec.schedule.fields["buffer"]) for run in full(name)}
        for name in ("async", "async-rates")
    )
    assert chosen - searched == {("FedSUM", 100)}
    devices = {repr(run.spec.schedule.fields["devices"]) for name in ("async", "async-rates") for run in full(name)}
    assert len(devices) == 1


def test_runs_are_named_after_the_function_alone():
    names = [run.name for run in full("availability")]
    assert names[0] == "cifar10,cifar10,stationary,FedSUM,eta_0=0.05,task.seed=3,schedule.seed=3,seed=3"
    table, _ = experiment("mistakes")
    same = ["fedsum.experiments.mistakes:DividedByM", "fedsum.experiments.between:Between"]
    table["sweep"]["algorithm"] = [same[0], {"name": same[1], "steps": "FedSUM", "server": "FedSUM"}]
    assert [run.name for run in expand(table, Path("there"))][::2] == [
        "cifar10,DividedByM,seed=0",
        "cifar10,Between,seed=0",
    ]


def test_methods_has_the_algorithms_whose_rates_are_searched():
    chosen, searched = (full(name) for name in ("methods", "methods-rates"))
    labels = {run.spec.algorithm.label for run in chosen}
    assert labels == {run.spec.algorithm.label for run in searched}
    # FedBuff and FedAsync differ from FedAvg only in asynchronous training.
    others = {"ServerOpt", "Compressed", "FedBuff", "FedAsync"}
    assert labels == {cls.label for name, cls in ALGORITHMS.items() if name not in others} | {"FedSUM + Adam"}
    assert all(run.spec.options.per_client for run in chosen)
    names = [run.name for run in full("compression")][::3]
    assert names[:2] == ["FedSUM,seed=0", "FedSUM-top-1-,seed=0"]


def test_unknown_names():
    with pytest.raises(InputError, match="did you mean 'algorithms'"):
        experiment("algorithm")
    with pytest.raises(InputError, match="'full' or 'small'"):
        experiment("bias", "tiny")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in ("async-rates", "compression", "methods-rates") else [])
        for name in EXPERIMENTS
        if name != "heterogeneity" and not name.startswith("sst2")
    ],
)
def test_every_figure_at_small_scale(name, fedsum, tmp_path):
    shorter = ("--rounds", 8, "--set", "eval_every=8", "--set", "eval_last=0") if name == "resnet" else ()
    code, _, error = fedsum("reproduce", name, "--scale", "small", "--folder", "runs", "--json", *shorter)
    assert code == 0, error
    for way in ("rounds", "communication", "last"):
        assert (tmp_path / f"runs/{way}.png").read_bytes()[:4] == b"\x89PNG"
        assert (tmp_path / f"runs/{way}.pdf").read_bytes()[:4] == b"%PDF"
    assert (tmp_path / "runs/report.html").stat().st_size > 20_000
    runs = read_runs(tmp_path / "runs")
    assert len(runs) == len(expand(experiment(name, "small")[0], tmp_path))
    for run in runs:
        assert run.state == "finished", run.folder
        loss = run.metrics["train_loss"]
        assert loss.iloc[-1] < 0.95 * loss.iloc[0], run.folder


def test_the_papers_deep_networks():
    resnet, sst2 = full("resnet"), full("sst2")
    assert {(run.table["task"]["name"], run.spec.options.eta_l) for run in resnet} == {
        ("cifar10", 0.01),
        ("cifar100", 0.001),
    }
    for run in resnet:
        options, task = run.spec.options, run.table["task"]
        assert (options.rounds, options.local_steps, options.batch_size) == (1000, 10, 32)
        assert (task["model"], task["clients"], task["alpha"], run.spec.schedule.fields["size"]) == (
            "resnet18",
            50,
            0.1,
            10,
        )
    for run in sst2:
        options, task = run.spec.options, run.spec.task.fields
        assert (options.rounds, options.local_steps, options.batch_size, options.eta_l) == (4000, 3, 4, 1e-4)
        assert (task["model"], task["clients"], task["partition"], task["train"]) == (
            "bert-base-uncased",
            8,
            "iid",
            "all",
        )
        assert run.spec.schedule.fields["size"] == 2


@pytest.mark.skipif(not sentences_at_hand("sst2"), reason="FEDSUM_DATA has no stanfordnlp/sst2")
@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name.startswith("sst2")])
def test_sst2_at_small_scale(name, fedsum, tmp_path):
    """With fewer rounds and samples: the small scale takes a minute."""
    shorter = ("--rounds", 4, "--set", "local_steps=5", "--set", "task.train_samples=500", "--set", "eval_last=0")
    two = () if name == "sst2-cure" else ("--set", 'sweep.algorithm=["FedSUM", "SCAFFOLD"]')
    code, _, error = fedsum("reproduce", name, "--scale", "small", "--folder", "runs", "--json", *shorter, *two)
    assert code == 0, error
    runs = read_runs(tmp_path / "runs")
    assert runs
    assert {run.state for run in runs} == {"finished"}
    assert all(run.metrics["train_loss"].nunique() > 1 for run in runs)
    assert (tmp_path / "runs/report.html").stat().st_size > 20_000


def test_sensitivity_is_drawn_against_the_rate(fedsum, tmp_path):
    assert fedsum("reproduce", "sensitivity", "--scale", "small", "--rounds", 4, "--folder", "runs", "--json")[0] == 0
    assert (tmp_path / "runs/setting.png").read_bytes()[:4] == b"\x89PNG"
    alone = ("--set", 'sweep."eta_l.eta_0"=[0.1]', "--folder", "one")
    assert fedsum("reproduce", "sensitivity", "--scale", "small", "--rounds", 4, *alone)[0] == 0
    assert (tmp_path / "one/rounds.png").exists()
    assert not (tmp_path / "one/setting.png").exists()


def test_tasks_may_be_drawn_apart(tmp_path):
    for name in ("mnist", "package.module:digits"):
        config = configured(task=TASK | {"name": name})
        write_run(tmp_path / name.rpartition(":")[2], config, measured(config))
    figure = {"title": "apart", "apart": "task"}
    # A colon cannot be in a file name on every system.
    assert {path.stem for path in draw(tmp_path, figure)} == {
        *(f"{way}-{task}" for way in ("rounds", "communication", "last") for task in ("mnist", "digits")),
        "report",
    }
    assert (tmp_path / "last-mnist.png").read_bytes() != (tmp_path / "last-digits.png").read_bytes()
    assert {path.stem for path in draw(tmp_path / "mnist", figure)} == {"rounds", "communication", "last", "report"}


def test_again_with_more_seeds_only_the_new_ones_run(fedsum, tmp_path):
    arguments = ("reproduce", "bias", "--scale", "small", "--folder", "runs", "--rounds", 6, "--json")
    assert fedsum(*arguments)[0] == 0
    before = {run.folder: (run.folder / "metrics.csv").stat().st_mtime_ns for run in read_runs(tmp_path / "runs")}
    code, out, _ = fedsum(*arguments, "--seeds", 2)
    assert code == 0
    assert len(json.loads(out)["runs"]) == 4
    assert all((folder / "metrics.csv").stat().st_mtime_ns == when for folder, when in before.items())


def test_heterogeneity_is_drawn_without_training(fedsum, tmp_path):
    code, _, _ = fedsum("reproduce", "heterogeneity", "--scale", "small", "--folder", "bars")
    assert code == 0
    assert (tmp_path / "bars/heterogeneity.png").read_bytes()[:4] == b"\x89PNG"
    code, out, _ = fedsum("reproduce", "heterogeneity", "--scale", "small", "--folder", "bars", "--json")
    assert (code, [Path(path).name for path in json.loads(out)["drawn"]]) == (
        0,
        ["heterogeneity.png", "heterogeneity.pdf"],
    )
    assert not list((tmp_path / "bars").rglob("config.toml"))


def test_the_bars_say_how_samples_were_split(fedsum, monkeypatch):
    drawn = []
    monkeypatch.setattr(drawing, "bars", lambda counts: drawn.extend(counts) or Figure())
    split = ("--set", "task.alpha=100")
    assert fedsum("reproduce", "heterogeneity", "--scale", "small", "--folder", "bars", *split)[0] == 0
    assert fedsum("reproduce", "heterogeneity", "--scale", "small", "--set", "task.partition=iid")[0] == 0
    assert drawn == ["digits, Dirichlet(100)", "digits, iid"]


def test_the_zoom_is_on_the_rounds_that_were_evaluated_one_by_one(fedsum, monkeypatch):
    seen = []
    monkeypatch.setattr(drawing, "panel_figure", lambda runs, **how: seen.append(how.get("last")) or Figure())
    assert fedsum("reproduce", "bias", "--scale", "small", "--rounds", "12", "--set", "eval_last=5")[0] == 0
    assert seen == [None, None, 5]


def authors_draws(labels, clients, seed):
    """Partition and probabilities step by step, as FedAWE's authors describe and draw them."""
    np.random.seed(seed)
    proportions = np.random.dirichlet(0.1 * np.ones(10), clients)
    parts, first = [[] for _ in range(clients)], [0] * 10
    for client in range(clients):
        for label in range(10):
            samples = [j for j, value in enumerate(labels) if value == label]
            end = round(len(samples) * proportions[: client + 1, label].sum() / proportions[:, label].sum())
            parts[client] += samples[first[label] : end]
            first[label] = end
    phi = [*np.random.uniform(0, 1, 5), *np.random.uniform(0, 0.5, 5)]
    return parts, [np.mean([phi[labels[j]] for j in part]) for part in parts]


@pytest.mark.parametrize("seed", [3, 4, 6])
def test_availability_repeats_the_authors_draws(seed):
    task = availability.digits(clients=20, seed=seed)
    parts, p = authors_draws(task.targets.tolist(), 20, seed)
    assert [part.tolist() for part in task.partition.parts] == parts
    schedule = availability.stationary(20, "digits", seed=seed)
    assert np.allclose(schedule.probability(0), p)
    waving = availability.sine(20, "digits", seed=seed)
    assert np.allclose(waving.probability(5), p)  # sin(2 pi 5 / 20) = 1
    assert np.allclose(waving.probability(15), 0.4 * np.array(p))
    np.random.seed(7)
    before = np.random.get_state()[1].copy()
    availability.digits(clients=20, seed=seed)
    assert (np.random.get_state()[1] == before).all()  # the user's generator is left alone


def test_the_authors_tasks(monkeypatch):
    """CIFAR-10 may be absent: the digits stand for it."""
    sets = {"cifar10": load("digits"), "svhn": load("digits")}
    monkeypatch.setattr(availability, "load", sets.get)
    monkeypatch.setattr(availability, "vision", lambda name, **options: options)
    mean = round(255 * load("digits").mean[0])
    assert availability.cifar10(20)["augment"] == Augment(4, flip=True, per_batch=True, fill=(mean,))
    assert availability.svhn(20)["augment"] == Augment(4, flip=False, per_batch=True, fill=(mean,))
    assert availability.svhn(20)["init"] == "kaiming"


def test_an_experiment_with_seeds_of_its_own(fedsum):
    code, _, error = fedsum("reproduce", "availability", "--scale", "small", "--seeds", 2)
    assert code == 2
    assert "seeds = 2: leave it out" in error


def test_theory_beside_the_measurement(fedsum, tmp_path):
    arguments = ("reproduce", "delays", "--scale", "small", "--folder", "runs", "--rounds", 12, "--seeds", 2, "--json")
    assert fedsum(*arguments)[0] == 0
    table = pd.read_csv(tmp_path / "runs/delay.csv").set_index("schedule")
    assert (tmp_path / "runs/delay.png").read_bytes()[:4] == b"\x89PNG"
    assert len(table) == 4
    full, cyclic = table.loc["Uniform size=30"], table.loc["Cyclic size=3"]
    assert (full.tau_avg, full.tau_max, full.seeds) == (0, 0, 2)
    assert cyclic.tau_max == 9  # 30 clients, 3 at a time
    assert full.mean_delay == 0
    # Turn after turn: in round t the clients that came are 0, 1, 2, ... late, those still to come t + 1.
    late = [sum(min(turn, t + 1) for turn in range(10)) / 10 for t in range(12)]
    assert cyclic.mean_delay == pytest.approx(np.mean(late))
    # Evenly over the rounds: 0, 4, 8 and 12, although the last ten were evaluated one by one.
    runs = [run.metrics.set_index("round") for run in read_runs(tmp_path / "runs") if "Cyclic" in run.folder.name]
    errors = [metrics["gradient_norm_sq"][[0, 4, 8, 12]] for metrics in runs]
    means = [error.mean() for error in errors]
    assert cyclic.error == pytest.approx(np.mean(means))
    assert (cyclic.lowest, cyclic.highest) == pytest.approx((min(means), max(means)))
    assert cyclic.late == pytest.approx(np.mean([error[[8, 12]].mean() for error in errors]))


def test_delays_need_the_gradient(fedsum, tmp_path):
    fedsum("reproduce", "bias", "--scale", "small", "--folder", "runs", "--rounds", 2, "--json")
    with pytest.raises(InputError, match="gradient_norm = true"):
        delays(read_runs(tmp_path / "runs"))


def test_rank_and_line():
    table = pd.DataFrame({"tau_avg": [0.0, 1.0, 5.0, 2.0], "error": [3.0, 5.0, 13.0, 7.0]})
    assert rank_correlation(table) == 1
    assert line(table) == pytest.approx((1.0, 2.0))
    assert line(table.assign(other=table["tau_avg"] / 2), "other") == pytest.approx((-1.0, 4.0))
    assert rank_correlation(table.assign(error=-table["error"])) == -1


def mean_labels(task):
    return np.array([task.targets[part].double().mean() for part in task.partition.parts])


def test_slow_devices_have_the_high_labels():
    run = expand(experiment("deadline", "small")[0], Path("there"))[0]
    task, devices = run.spec.task.make(), run.spec.options.devices
    seconds = devices.seconds(np.arange(task.n), run.spec.options.seed, steps=1, down_bytes=0, up_bytes=0)
    by_speed = np.argsort(seconds)
    assert (np.diff(mean_labels(task)[by_speed]) >= 0).all()
    assert sorted(task.client_groups["slow"]) == sorted(by_speed[-6:])
    assert sorted(np.concatenate(list(task.client_groups.values()))) == list(range(task.n))
    full_run = full("deadline")[0].spec
    assert vars(full_run.options.devices.seconds_per_step) == {"low": deadline.FASTEST, "high": deadline.SLOWEST}
    assert deadline.SLOWEST == 10 * deadline.FASTEST


def test_night_phones_have_the_low_labels():
    task = phones.digits(clients=12)
    share = phones.night_share(phones.generated(12).availability)
    assert (np.diff(mean_labels(task)[np.argsort(-share, kind="stable")]) >= 0).all()
    assert {name: ids.tolist() for name, ids in task.client_groups.items()} == {
        "night": list(range(6)),
        "day": list(range(6, 12)),
    }


def test_the_phones_need_their_trace(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDSUM_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"traces/phones\.csv"):
        phones.recorded(512)
    (tmp_path / "traces").mkdir()
    rows = [f"{t},{phone}" for t in range(241) for phone in range(8) if (t % 48 < 16) == (phone % 4 < 2)]
    (tmp_path / "traces/phones.csv").write_text("\n".join(["round,client", *rows]) + "\n")
    assert phones.recorded(8, size=4).active(0, 241 + 3).tolist() == [0, 1, 4, 5]
    assert phones.recorded(4, size=4).active(0, 3).tolist() == [0, 2]  # phones 0, 2, 4 and 6, at night 0 and 4
    with pytest.raises(InputError, match="at most 8"):
        phones.recorded(9)


def test_groups_of_clients_are_reported(fedsum, tmp_path):
    only = ("--rounds", 4, "--set", 'sweep."algorithm, enough"=[["FedAvg", 0.8]]')
    assert fedsum("reproduce", "deadline", "--scale", "small", "--folder", "runs", *only)[0] == 0
    (run,) = read_runs(tmp_path / "runs")
    slow = deadline.digits().client_groups["slow"]
    table = run.clients.set_index("client")
    assert run.metrics["client_accuracy_slow"].iloc[-1] == pytest.approx(table.loc[slow, "accuracy"].mean())
    assert (tmp_path / "runs/time.png").exists()


def test_an_algorithm_whose_rates_all_diverge_has_no_best_rate(fedsum):
    rates = (
        "--set",
        'sweep."eta_l.eta_0"=[0.1]',
        "--set",
        'sweep."algorithm, eta_g"=[["FedSUM", 1e37], ["FedAvg", 1.0]]',
    )
    code, out, _ = fedsum("reproduce", "methods-rates", "--scale", "small", "--rounds", 4, *rates)
    assert code == 0
    assert "best for FedSUM: none of its settings finished all runs" in out
    assert "best for FedAvg: FedAvg," in out
