"""Simulated time: closed forms, a recomputation from counted bytes, deadlines, files, resumption, reports."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch

import fedsum as fs
from fedsum import Devices, InputError, LogNormal, LogUniform
from fedsum.algorithms import ALGORITHMS
from fedsum.report import panel_figure, render
from fedsum.report.markdown_tables import curves_of, rounds_to

N, K = 6, 4


def quadratic(n=N, d=3):
    draw = np.random.default_rng(0)
    return fs.tasks.Quadratic(draw.uniform(1, 2, (n, d)), draw.normal(size=(n, d)))


def run(schedule, algorithm=None, task=None, **options):
    given = {"rounds": 5, "local_steps": K, "eta_l": 0.05, "eval_every": 1, "dtype": torch.float64} | options
    return fs.simulate(task or quadratic(schedule.n), algorithm or fs.FedAvg(), schedule, **given)


def times(history):
    return [row["time"] for row in history.rows]


# Closed forms. FedAvg sends x down and G up: d = 3 numbers of 8 bytes each.


def test_one_client():
    history = run(fs.Uniform(1, 1), devices=Devices(seconds_per_step=0.5, up=12, down=48))
    per_round = 24 / 48 + K * 0.5 + 24 / 12
    assert times(history) == pytest.approx([per_round * t for t in range(6)])
    assert [row["late"] for row in history.rows] == [0] * 6


def test_equal_clients_take_as_long_as_one():
    devices = Devices(seconds_per_step=0.5, up=12, down=48)
    assert times(run(fs.Uniform(N, 4), devices=devices)) == times(run(fs.Uniform(1, 1), devices=devices))


def test_a_round_lasts_as_long_as_its_slowest_client():
    devices = Devices(seconds_per_step=[1, 2, 3, 4, 5, 6])
    history = run(fs.Explicit(N, [[0], [0, 3], [], [5, 1], [2]]), devices=devices)
    assert np.diff(times(history)).tolist() == [K * s for s in (1, 4, 0, 6, 3)]


def test_a_deadline_cuts_exactly_the_slow_half():
    """The run is the run of the fast half, to the last bit: the work of the slow half is lost."""
    closes = []
    slow = Devices(seconds_per_step=[1, 2, 1, 2, 1, 2], up=24)
    observed = {"on_round": closes.append, "algorithm": fs.FedSUM()}
    history = run(fs.Cyclic(N, N), devices=slow, deadline=K * 1 + 2.0, **observed)  # FedSUM sends one vector up
    alone = run(fs.Explicit(N, [[0, 2, 4]], repeat=True), fs.FedSUM())
    assert torch.equal(history.x, alone.x)
    assert [row["train_loss"] for row in history.rows] == [row["train_loss"] for row in alone.rows]
    assert times(history) == [6.0 * t for t in range(6)]
    assert history.rows[-1]["late"] == 15
    assert [(done.closed.late.tolist(), done.active.tolist()) for done in closes] == [([1, 3, 5], [0, 2, 4])] * 5
    # The server sent x and y to three late clients, 5 times.
    assert history.rows[-1]["bytes"] - alone.rows[-1]["bytes"] == 5 * 3 * 2 * 24
    assert history.delays.counts.tolist() == [5, 0, 5, 0, 5, 0]
    in_time = run(fs.Cyclic(N, N), devices=slow, deadline=100.0)  # nobody is late, and nobody waits for the deadline
    assert times(in_time) == [(K * 2 + 1.0) * t for t in range(6)]
    nobody = run(fs.Cyclic(N, N), devices=slow, deadline=1.0)
    assert times(nobody) == [0, 1, 2, 3, 4, 5]
    assert nobody.delays.counts.sum() == 0


def test_a_round_closes_when_enough_clients_are_done():
    devices = Devices(seconds_per_step=[1, 2, 3, 4, 5, 6])
    asked = run(fs.Cyclic(N, N), devices=devices, enough=0.5)
    assert asked.delays.counts.tolist() == [5, 5, 5, 0, 0, 0]
    assert np.diff(times(asked)).tolist() == [K * 3.0] * 5
    sooner = run(fs.Cyclic(N, N), devices=devices, enough=0.5, deadline=K * 2.5)
    assert sooner.delays.counts.tolist() == [5, 5, 0, 0, 0, 0]
    assert np.diff(times(sooner)).tolist() == [K * 2.5] * 5
    # Over-selection: 3 of the 5 clients that are asked.
    chosen = fs.Sampled(fs.Cyclic(N, N), 3, oversample=5 / 3)
    over = run(chosen, devices=devices, enough=0.6)
    assert (over.delays.counts.sum(), over.rows[-1]["late"]) == (15, 10)
    assert run(fs.Cyclic(N, N), devices=devices, enough=1.0).rows[-1]["late"] == 0


# Recomputed from the schedule, K and the counted bytes.


@pytest.mark.parametrize("name", ALGORITHMS)
def test_time_follows_from_steps_and_counted_bytes(name):
    algorithm = ALGORITHMS[name]()
    schedule, rate = fs.Independent(N, 0.5), 100.0
    devices = Devices(seconds_per_step=LogUniform(0.01, 1.0), up=rate, down=rate)
    timed = run(schedule, algorithm, devices=devices, rounds=12, seed=3)
    plain = run(schedule, algorithm, rounds=12, seed=3)
    assert torch.equal(timed.x, plain.x)
    assert "time" not in plain.rows[0]
    speed = devices.seconds(np.arange(N), 3, steps=1, down_bytes=0, up_bytes=0)
    expected = [0.0]
    for t in range(12):
        active = schedule.active(3, t)
        sent = plain.rows[t + 1]["bytes"] - plain.rows[t]["bytes"]
        took = sent / len(active) / rate + K * speed[active].max() if len(active) else 0.0
        expected.append(expected[-1] + took)
    assert times(timed) == pytest.approx(expected, rel=1e-12)


def test_up_and_down_have_their_own_links():
    up, down = [10.0, 20, 30, 40, 50, 60], [70.0, 60, 50, 40, 30, 20]
    schedule = fs.Uniform(N, 2)
    history = run(schedule, fs.FedSUM(), devices=Devices(up=up, down=down))  # x and y down, one vector up
    took = [max(48 / down[i] + 24 / up[i] for i in schedule.active(0, t)) for t in range(5)]
    assert np.diff(times(history)) == pytest.approx(took, rel=1e-12)


# Devices.


def test_draws_are_keyed_by_seed_and_client():
    devices = Devices(LogUniform(0.1, 1.0), up=LogNormal(1e6, 0.5), down=LogNormal(1e6, 0.5))
    ids = np.array([5, 1023, 1024, 999_999])
    need = {"steps": 2, "down_bytes": 10**6, "up_bytes": 10**6}
    together = devices.seconds(ids, 7, **need)
    alone = [devices.seconds(np.array([i]), 7, **need)[0] for i in ids]
    assert together.tolist() == alone
    assert len(set(together.tolist())) == 4
    assert not np.array_equal(devices.seconds(ids, 8, **need), together)
    many = np.arange(20_000)
    speed = devices.seconds(many, 0, steps=1, down_bytes=0, up_bytes=0)
    assert 0.1 <= speed.min() < 0.11 < 0.9 < speed.max() <= 1.0
    assert np.median(speed) == pytest.approx(0.1**0.5, rel=0.05)
    up = devices.seconds(many, 0, steps=0, down_bytes=0, up_bytes=1)
    down = devices.seconds(many, 0, steps=0, down_bytes=1, up_bytes=0)
    assert 1 / np.median(up) == pytest.approx(1e6, rel=0.05)
    assert np.log(up).std() == pytest.approx(0.5, rel=0.05)
    assert abs(np.corrcoef(np.log(up), np.log(down))[0, 1]) < 0.05  # drawn apart


def test_files_of_devices(tmp_path):
    (tmp_path / "mine.csv").write_text("client,seconds_per_step,up\nb,2,20\na,1,10\nc,3,30\n")
    own = Devices.read(tmp_path / "mine.csv")
    assert (own.n, own.catalogue) == (3, False)
    assert own.seconds(np.arange(3), 0, steps=1, down_bytes=9, up_bytes=60).tolist() == [7, 5, 5]
    pd.DataFrame({"seconds_per_step": [1.0, 2.0], "up": [4.0, 2.0]}).to_parquet(tmp_path / "kinds.parquet")
    kinds = Devices.read(tmp_path / "kinds.parquet")
    assert (kinds.n, kinds.catalogue) == (None, True)
    seconds = kinds.seconds(np.arange(4000), 0, steps=1, down_bytes=0, up_bytes=4)
    assert set(seconds.tolist()) == {2.0, 4.0}  # speed and link of one device stay together
    assert (seconds == 2.0).mean() == pytest.approx(0.5, abs=0.05)
    for text, message in [
        ("a,b\n1,2\n", "at least one of the columns seconds_per_step, up, down"),
        ("up\n", "at least one line"),
        ("up\nfast\n", "line 2 = 'fast': a number"),
        ("client,up\na,1\na,2\n", "line 3 = 'a': client given twice"),
        ("up\n-1\n", "up = "),
    ]:
        (tmp_path / "bad.csv").write_text(text)
        with pytest.raises(InputError) as caught:
            Devices.read(tmp_path / "bad.csv")
        assert message in str(caught.value)
    table = own.dump()
    assert Devices.parse(table) == own
    (tmp_path / "mine.csv").write_text("client,seconds_per_step,up\nb,2,20\na,1,10\nc,3,31\n")
    with pytest.raises(InputError, match="the file has changed since this run began"):
        Devices.parse(table)


def test_devices_in_settings():
    for devices in [
        Devices(0.1),
        Devices(0.0, up=1e6, down=5e6),
        Devices([0.1, 0.2], up=LogUniform(1, 2), down=LogNormal(3, 0.5)),
        Devices([0.1, 0.2], up=[1, 2], catalogue=True),
    ]:
        again = Devices.parse(json.loads(json.dumps(devices.dump())))
        assert again == devices
        assert hash(again) == hash(devices)
        ids = np.arange(2)
        need = {"steps": 3, "down_bytes": 100, "up_bytes": 200}
        assert again.seconds(ids, 1, **need).tolist() == devices.seconds(ids, 1, **need).tolist()
    assert Devices(0.1) != Devices(0.2)


BAD = [
    (lambda: Devices(-1.0), "seconds_per_step = "),
    (lambda: Devices(math.inf), "seconds_per_step = "),
    (lambda: Devices("fast"), "seconds_per_step = 'fast': a number, an array"),
    (lambda: Devices(up=0.0), "up = "),
    (lambda: Devices(down=[1.0, -1.0]), "down = [1.0, -1.0]"),
    (lambda: Devices(down=[[1.0]]), "down = [[1.0]]"),
    (lambda: Devices([1.0], up=[1.0, 2.0]), "devices = [1, 2]: arrays of the same length"),
    (lambda: Devices(1.0, catalogue=True), "catalogue = True: arrays"),
    (lambda: LogUniform(2, 1), "high = 1.0: at least low = 2.0"),
    (lambda: LogNormal(2, -1), "spread = -1"),
    (lambda: Devices.parse(3), "devices = 3: a table such as"),
    (lambda: Devices.parse({"speed": 3}), "devices.speed = 3: no such field"),
    (lambda: Devices.parse({"up": {"name": "Normal"}}), "devices.up = 'Normal'"),
    (lambda: run(fs.Uniform(N, 2), devices=3.0), "devices = 3.0: fedsum.Devices("),
    (lambda: run(fs.Uniform(N, 2), devices=Devices([1.0])), "devices.n = 1: the task has 6 clients"),
    (lambda: run(fs.Uniform(N, 2), deadline=3.0), "deadline = 3.0: only together with devices"),
    (lambda: run(fs.Uniform(N, 2), enough=0.5), "enough = 0.5: only together with devices"),
    (lambda: run(fs.Uniform(N, 2), devices=Devices(1.0), deadline=0), "deadline = 0"),
    (lambda: run(fs.Uniform(N, 2), devices=Devices(1.0), enough=1.5), "enough = 1.5"),
    (lambda: run(fs.Uniform(N, 2)).plot(x="time"), "x = 'time': "),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[m for _, m in BAD])
def test_bad_input_is_one_clear_line(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# Runs in folders.

SETTINGS = """
rounds = 9
local_steps = 4
eta_l = 0.05
eval_every = 1
deadline = 2.0
task = {name = "quadratic", n = 8, d = 3}
algorithm = "FedSUM"
schedule = {name = "Uniform", size = 5}
[devices]
seconds_per_step = {name = "LogUniform", low = 0.1, high = 1.0}
up = 1000.0
"""


def test_settings_file_resumption_and_reports(tmp_path, fedsum):
    (tmp_path / "run.toml").write_text(SETTINGS)
    assert fedsum("run", "run.toml", "--folder", "runs/whole")[0] == 0
    assert fedsum("run", "run.toml", "--folder", "runs/part", "--set", "rounds=4")[0] == 0
    assert fedsum("resume", "runs/part", "--set", "rounds=9")[0] == 0
    whole, part = (fs.read_runs(tmp_path / "runs" / name)[0] for name in ("whole", "part"))
    clock = ["seconds", "eval_seconds"]
    assert part.metrics.drop(columns=clock).equals(whole.metrics.drop(columns=clock))
    assert whole.last["time"] > 0
    assert 0 < whole.last["late"] < 45
    code, _, error = fedsum("run", "run.toml", "--folder", "runs/whole", "--set", "deadline=3")
    assert (code, "deadline" in error) == (2, True)
    code, _, error = fedsum("run", "run.toml", "--folder", "runs/whole", "--set", "devices.up=500")
    assert (code, "devices.up" in error) == (2, True)
    # Time is an axis and a cost.
    page = json.loads(render([whole], "t", []).split('id="payload"')[1].split(">", 1)[1].split("</script>")[0])
    assert [x["name"] for x in page["xs"]] == ["round", "communication", "bytes", "seconds", "time"]
    assert page["runs"][0]["columns"]["time"][-1] == pytest.approx(whole.last["time"], rel=1e-5)
    assert page["final"][0]["time"] == pytest.approx(whole.last["time"], rel=1e-5)
    assert "time" not in [metric["name"] for metric in page["metrics"]]
    axes = panel_figure([whole], x="time", y="train_loss").axes[0]
    assert axes.get_xlabel() == "simulated seconds"
    assert axes.lines[0].get_xdata()[-1] == pytest.approx(whole.last["time"])
    target = float(whole.metrics["train_loss"].iloc[4])
    first = whole.metrics[whole.metrics["train_loss"] <= target].iloc[0]
    task = next(iter(curves_of([whole], {}, None))).task
    table = rounds_to(curves_of([whole], {}, None), ["algorithm"], ["task"], "train_loss", {task: target}, "time")
    assert f"{first['time']:.4g} ({first['round']:.0f})" in table[-1]
    assert table[0].startswith("Simulated seconds, and in brackets rounds, until the train loss")


def test_plots_targets_and_budgets_of_time():
    devices = Devices(LogUniform(0.1, 1))
    history = run(fs.Uniform(N, 3), devices=devices, rounds=20)
    axes = history.plot(run(fs.Uniform(N, 3), fs.FedSUM(), devices=devices), x="time").axes[0]
    assert axes.get_xlabel() == "simulated seconds"
    assert axes.lines[0].get_xdata().tolist() == times(history)
    budget = times(history)[7]
    stopped = run(fs.Uniform(N, 3), devices=devices, rounds=20, stop=fs.StopWhen("time", above=budget))
    assert (stopped.stopped, times(stopped)) == (8, times(history)[:9])


def test_a_run_without_devices_has_no_clock(monkeypatch):
    """Without devices, a round computes nothing more."""

    def fail(*_):
        raise AssertionError("a clock without devices")

    monkeypatch.setattr("fedsum.training.training_loop.RoundClock", fail)
    assert "time" not in run(fs.Uniform(N, 3)).rows[-1]
