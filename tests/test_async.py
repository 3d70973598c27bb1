"""Asynchronous training: the event queue, a literal transcription, all engines, time, resumption, refusals."""

import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import nets
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from literal import Problem
from literal_async import RULES, asynchronous
from problems import RATES, D, K, N, noisy
from safetensors.torch import load_file
from test_contract import ROWS
from wire import over_the_wire

import fedsum
from fedsum import Asynchronous, Devices, FedAsync, FedAvg, FedBuff, FedSUM, InputError, LogUniform, Uniform, simulate
from fedsum.algorithms import ALGORITHMS
from fedsum.base.keyed import Purpose, rng
from fedsum.runs import Run
from fedsum.spec import RunSpec, ScheduleSpec
from fedsum.training import Outstanding

HERE = Path(__file__).parent
STEPS = 40
SPEEDS = [0.5, 1.0, 1.7, 2.0, 3.1, 4.0, 5.0]
LINKS = {"up": [900.0, 40, 50, 300, 70, 80, 90], "down": 200.0}
ASYNC_ROWS = [row for row in ROWS if not row.algorithm.only_synchronous]


def schedule(buffer=2, concurrency=None, jitter=0.3, n=N, **links):
    return Asynchronous(n, Devices(seconds_per_step=np.resize(SPEEDS, n), **links), buffer, concurrency, jitter)


def run(algorithm, chosen, rounds=STEPS, *, eta_l=0.05, task=None, local_steps=K, **options):
    options = {"seed": 2, "dtype": torch.float64, "eval_every": rounds} | options
    return simulate(task or noisy(), algorithm, chosen, rounds=rounds, local_steps=local_steps, eta_l=eta_l, **options)


# The transcription.


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize(
    ("buffer", "concurrency"), [(1, None), (3, None), (N, None), (1, 4), (3, 4), (2, 2)], ids=lambda value: str(value)
)
@pytest.mark.parametrize("name", RULES)
def test_equals_the_literal_event_queue(name, buffer, concurrency, rate):
    eta_g = 1.0 if name == "FedAsync" else 0.8
    chosen = schedule(buffer, concurrency, **LINKS)
    active = []
    ours = run(
        ALGORITHMS[name](),
        chosen,
        eta_l=RATES[rate],
        eta_g=eta_g,
        eval_every=1,
        on_round=lambda done: active.append(done.active.tolist()),
    )
    rule = RULES[name](Problem(noisy(), None, K, RATES[rate], eta_g, seed=2))
    down, up = (8 * (vectors * D + scalars) for vectors, scalars in zip(rule.vectors, rule.scalars, strict=True))
    bound = chosen.during(steps=K, down_bytes=down, up_bytes=up)

    def seconds(t, i):
        place = bound.dispatch(2, t).tolist().index(i)
        factors = np.exp(0.3 * rng(2, Purpose.SCHEDULE, t, 2).standard_normal(N))
        return (down / LINKS["down"] + K * SPEEDS[i] + up / LINKS["up"][i]) * factors[place]

    # Who of the clients without work is next is drawn; the transcription takes these draws.
    sent = None if concurrency is None else lambda t: bound.dispatch(2, t).tolist()
    x, arrivals, times = asynchronous(rule.P, rule, steps=STEPS, buffer=buffer, seconds=seconds, sent=sent)
    assert np.abs(ours.x.numpy() - x).max() < 1e-9
    assert np.abs(x - noisy().init(2).numpy()).max() > 1e-2  # something was learned
    assert active == arrivals
    assert [row["time"] for row in ours.rows[1:]] == pytest.approx(times, rel=1e-12)
    dispatched = np.cumsum([len(bound.dispatch(2, t)) for t in range(STEPS)])
    bytes_sent = [down * d + up * buffer * (t + 1) for t, d in enumerate(dispatched)]
    assert [row["bytes"] for row in ours.rows[1:]] == bytes_sent
    assert ours.delays.counts.tolist() == np.bincount(np.concatenate(arrivals), minlength=N).tolist()


@pytest.mark.parametrize("row", ASYNC_ROWS, ids=lambda row: row.id)
@pytest.mark.parametrize("concurrency", [None, 4])
def test_every_algorithm_trains_each_client_from_what_it_was_sent(row, concurrency):
    """Stacked in the simulator, and one client at a time with its own message."""
    chosen = schedule(2, concurrency)
    ours = run(row.algorithm, chosen, eta_l=RATES["decaying"], eta_g=row.eta_g)
    server, clients, memory, tau = over_the_wire(
        noisy(),
        row.algorithm,
        chosen.during(steps=K, down_bytes=0, up_bytes=0),
        rounds=STEPS,
        K=K,
        eta_l=RATES["decaying"],
        eta_g=row.eta_g,
        seed=2,
    )
    for name, value in server.items():
        assert torch.allclose(ours.server[name], value, rtol=1e-11, atol=1e-11), name
    for theirs, states in ((ours.clients, clients), (ours.memory, memory)):
        assert list(theirs) == sorted(states)
        for i, state in states.items():
            for name, value in state.items():
                assert torch.allclose(theirs[i][name], value, rtol=1e-11, atol=1e-11), (i, name)
    assert ours.delays.tau.tolist() == tau
    if row.invariant is not None:
        assert row.invariant(ours).abs().max() < 1e-12


# Identities.


@pytest.mark.parametrize("row", ASYNC_ROWS, ids=lambda row: row.id)
def test_equal_speeds_and_a_full_buffer_are_synchronous(row):
    devices = Devices(seconds_per_step=0.7, up=300.0, down=500.0)
    options = {"eta_g": row.eta_g, "eta_l": RATES["decaying"], "eval_every": 7}
    ours = run(row.algorithm, Asynchronous(N, devices, buffer=N), **options)
    synchronous = run(row.algorithm, Uniform(N, N), devices=devices, **options)
    for name, value in synchronous.server.items():
        assert torch.equal(ours.server[name], value), name
    for mine, other in zip(ours.rows, synchronous.rows, strict=True):
        assert mine["time"] == pytest.approx(other["time"], rel=1e-12)
        columns = ("round", "train_loss", "communication", "bytes", "tau")
        assert [mine[name] for name in columns] == [other[name] for name in columns]
    assert "late" not in ours.rows[0]


@pytest.mark.parametrize("rate", RATES)
def test_without_staleness_they_are_fedavg(rate):
    for chosen in (fedsum.Independent(N, 0.4), fedsum.Cyclic(N, 2)):
        fedavg = run(FedAvg(), chosen, eta_l=RATES[rate], eta_g=0.8)
        assert torch.equal(run(FedBuff(), chosen, eta_l=RATES[rate], eta_g=0.8).x, fedavg.x)
        assert (run(FedAsync(0.8), chosen, eta_l=RATES[rate]).x - fedavg.x).abs().max() < 1e-12


def test_without_weights_for_staleness_fedasync_mixes_alike():
    stale, flat = (run(FedAsync(power=power), schedule(1)) for power in (0.5, 0.0))
    assert (stale.x - flat.x).abs().max() > 1e-3


def test_the_family_is_exact_although_models_are_old():
    """Slow and fast clients: FedBuff's model favours the fast ones, FedSUM's does not."""
    task = fedsum.tasks.Quadratic.random(N, D, seed=3)
    options = {"task": task, "rounds": 4000, "local_steps": 2, "eta_l": 0.02}
    for concurrency in (None, 4):
        errors = {
            algorithm.label: run(algorithm, schedule(1, concurrency), **options).rows[-1]["error"]
            for algorithm in (FedSUM(), fedsum.FedSUMB(), fedsum.FedSUMCR(), FedBuff(), FedAvg())
        }
        assert max(errors[name] for name in ("FedSUM", "FedSUM-B", "FedSUM-CR")) < 1e-9, errors
        assert min(errors[name] for name in ("FedBuff", "FedAvg")) > 1e-3, errors


# The schedule.


schedules = st.builds(
    lambda n, buffer, more, jitter, low: Asynchronous(
        n, Devices(seconds_per_step=LogUniform(low, 10)), min(buffer, n), min(n, buffer + more), jitter
    ),
    st.integers(1, 30),
    st.integers(1, 9),
    st.integers(0, 30),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([1.0, 10.0]),
)


@given(schedules, st.integers(0, 2**32))
def test_the_queue_in_any_order_and_process(chosen, seed):
    copy = pickle.loads(pickle.dumps(chosen))
    assert [copy.active(seed, t).tolist() for t in (30, 3, 7)] == [chosen.active(seed, t).tolist() for t in (30, 3, 7)]
    working, last = set(), 0.0
    for t in range(30):
        sent, active = set(chosen.dispatch(seed, t).tolist()), set(chosen.active(seed, t).tolist())
        assert not sent & working
        working |= sent
        assert len(working) == chosen.concurrency
        assert active <= working
        assert len(active) == chosen.buffer
        working -= active
        assert chosen.time(seed, t) >= last
        last = chosen.time(seed, t)
    chosen.dispatch(seed, 0)[:] = -1
    assert chosen.dispatch(seed, 0).min() >= 0


def test_work_that_takes_no_time_is_done_in_turn():
    chosen = Asynchronous(6, Devices(), buffer=2)
    assert [chosen.active(0, t).tolist() for t in range(4)] == [[0, 1], [2, 3], [4, 5], [0, 1]]
    assert chosen.time(0, 3) == 0


def test_clients_without_work_are_drawn_uniformly():
    chosen = Asynchronous(8, Devices(seconds_per_step=1.0), buffer=2, concurrency=2)
    counts = np.bincount(np.concatenate([chosen.dispatch(5, t) for t in range(4000)]), minlength=8)
    assert counts.sum() == 8000
    assert ((counts - 1000) ** 2 / 1000).sum() < 25  # chi-squared with 7 degrees of freedom: p < 0.001


def test_fast_clients_arrive_in_proportion_to_their_speed():
    counts = fedsum.delays(Asynchronous(3, Devices(seconds_per_step=[1, 2, 4]), buffer=1), rounds=7000).counts
    assert counts.tolist() == pytest.approx([4000, 2000, 1000], abs=2)


def test_steps_and_bytes_of_the_run_decide_who_is_next():
    """A client with a slow link is later if messages are longer; FedSUM sends two vectors down."""
    devices = Devices(seconds_per_step=[1.0, 2.0], down=[8.0, 1e9])
    task = fedsum.tasks.Quadratic(np.ones((2, 4)), np.ones((2, 4)))

    def first(algorithm, **work):
        seen = []
        options = {"rounds": 1, "eta_l": 0.1, "dtype": torch.float64, "on_round": seen.append, **work}
        simulate(task, algorithm, Asynchronous(2, devices, 1), **options)
        return seen[0].active.tolist()

    assert first(FedAvg(), local_steps=5) == [0]  # 4 + 5 against 10 seconds
    assert first(FedSUM(), local_steps=5) == [1]  # 8 + 5 against 10 seconds
    assert first(FedSUM(), local_steps=9) == [0]


def test_clients_with_their_own_numbers_of_steps():
    history = simulate(
        nets.task(),
        FedBuff(),
        Asynchronous(nets.N, Devices(seconds_per_step=1.0), 1),
        rounds=1,
        local_epochs=1,
        batch_size=4,
        eta_l=0.05,
    )
    sizes = nets.images().partition.sizes
    assert history.rows[-1]["time"] == min(-(-int(size) // 4) for size in sizes)


# Engines, processes, folders.


@pytest.mark.parametrize("algorithm", [cls() for cls in ALGORITHMS.values()], ids=lambda a: a.name)
def test_batched_agrees_with_the_loop(algorithm):
    loop, batched = (
        run(algorithm, schedule(3, 5, n=nets.N), task=nets.task(), batch_size=8, engine=engine, rounds=20).x
        for engine in ("loop", "batched")
    )
    assert (batched - loop).norm() <= 1e-10 * loop.norm()
    assert (loop - nets.task().init(2)).norm() > 1e-2


def test_workers_agree_with_the_loop():
    loop, workers = (
        run(FedSUM(), schedule(3, 5, n=nets.N), task=nets.task(), batch_size=8, engine=engine, rounds=6).x
        for engine in ("loop", "workers")
    )
    assert torch.equal(loop, workers)


class Stop(Exception):
    pass


@pytest.mark.parametrize("row", ASYNC_ROWS, ids=lambda row: row.id)
def test_interrupted_and_resumed_to_the_same_bits(row, tmp_path):
    def stop(done):
        if done.round == 17:
            raise Stop

    options = {"eta_g": row.eta_g, "checkpoint_rounds": 5, "eval_every": 4}
    whole = run(row.algorithm, schedule(2, 5), folder=tmp_path / "whole", **options)
    with pytest.raises(Stop):
        run(row.algorithm, schedule(2, 5), folder=tmp_path / "parts", on_round=stop, **options)
    resumed = run(row.algorithm, schedule(2, 5), folder=tmp_path / "parts", **options)
    for name, value in whole.server.items():
        assert torch.equal(resumed.server[name], value), name
    for mine, other in zip(whole.rows, resumed.rows, strict=True):
        assert all(mine[name] == other[name] for name in mine if "seconds" not in name)
    one, two = (load_file(tmp_path / name / "checkpoint.safetensors") for name in ("whole", "parts"))
    assert one.keys() == two.keys()
    saved = "outstanding.clients", "outstanding.rounds"
    for name in saved:
        order = [torch.argsort(states["outstanding.clients"]) for states in (one, two)]
        assert torch.equal(one[name][order[0]], two[name][order[1]])
    assert len(one["outstanding.clients"]) == 5 - 2  # before the next clients are sent work


def test_more_rounds_later_are_the_rounds_of_a_longer_run(tmp_path):
    whole = run(FedSUM(), schedule(2, 5), eval_every=10)
    run(FedSUM(), schedule(2, 5), rounds=23, folder=tmp_path / "run", eval_every=10)
    extended = run(FedSUM(), schedule(2, 5), folder=tmp_path / "run", extend=True, eval_every=10)
    assert torch.equal(whole.x, extended.x)
    assert whole.rows[-1]["bytes"] == extended.rows[-1]["bytes"]


@pytest.mark.parametrize("algorithm", ["FedBuff", "FedSUMCR"])
def test_killed_at_random_instants_it_ends_with_the_same_bits(algorithm, tmp_path):
    def lives(folder, kills):
        command = [sys.executable, HERE / "killed.py", algorithm, folder, str(kills), "7", "asynchronous"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    lives(tmp_path / "whole", 0)
    told = lives(tmp_path / "killed", 6)
    assert told.count("killed") == 6
    assert len(set(re.findall(r"began (\d+)", told))) > 2
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert (whole / "model.safetensors").read_bytes() == (killed / "model.safetensors").read_bytes()
    rows = [[{n: v for n, v in row.items() if "seconds" not in n} for row in Run.read(f).rows] for f in (whole, killed)]
    assert rows[0] == rows[1]


def test_memory_follows_the_models_in_use():
    """Of ten thousand clients four are at work: at most four models are stored."""
    n, most = 10_000, []
    task = fedsum.tasks.Quadratic(np.ones((n, 2)), np.random.default_rng(0).normal(size=(n, 2)))

    class Watch(fedsum.Observer):
        def round_done(self, run, done):
            most.append((len(run.state.outstanding), len(run.state.outstanding.state()["message.x"])))

    run(FedBuff(), schedule(1, 4, n=n), task=task, observers=[Watch()])
    assert {clients for clients, _ in most} == {3}
    assert max(models for _, models in most) <= 3


def test_outstanding_messages_survive_a_checkpoint():
    outstanding = Outstanding()
    assert len(Outstanding.restored(outstanding.state(), torch.device("cpu"))) == 0
    outstanding.send(np.array([4, 2]), 0, {"x": torch.tensor([1.0, 2.0]), "t": torch.tensor(0)})
    outstanding.send(np.array([7]), 3, {"x": torch.tensor([3.0, 4.0]), "t": torch.tensor(3)})
    outstanding.arrived(np.array([4]))
    again = Outstanding.restored(outstanding.state(), torch.device("cpu"))
    assert len(again) == 2
    message = again.arrived(np.array([2, 7]))
    assert message["x"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert message["t"].tolist() == [0, 3]
    assert again.arrived(np.array([], dtype=int)) == {}


# Settings and refusals.


def test_settings(tmp_path):
    (tmp_path / "devices.csv").write_text("seconds_per_step,up\n1,100\n3,200\n")
    file = Devices.read(tmp_path / "devices.csv")
    for devices in (file, Devices(seconds_per_step=LogUniform(1, 10), up=1e6), Devices(seconds_per_step=[1.0] * 12)):
        chosen = Asynchronous(12, devices, 3, jitter=0.1)
        table = {
            **{"task": {"name": "digits", "clients": 12}, "algorithm": "FedBuff", "rounds": 2},
            **{"local_steps": 1, "eta_l": 0.1, "schedule": {"name": "asynchronous", "devices": devices.dump()}},
        }
        table["schedule"] |= {"buffer": 3, "jitter": 0.1}
        spec = RunSpec.parse(table)
        assert RunSpec.parse(json.loads(json.dumps(spec.dump()))) == spec
        assert spec.schedule.make(12) == chosen
        assert ScheduleSpec.of(chosen, 2, 0).dump() == spec.schedule.dump()
    (tmp_path / "devices.csv").write_text("seconds_per_step,up\n1,100\n4,200\n")
    with pytest.raises(InputError, match="the file has changed"):
        ScheduleSpec.of(Asynchronous(12, file, 3), 2, 0).make(12)


def test_on_the_command_line(fedsum, tmp_path):
    arguments = ("delays", "asynchronous", "--n", 20, "--buffer", 2, "--rounds", 200, "--json")
    code, out, _ = fedsum(*arguments)
    found = json.loads(out)
    assert code == 0
    assert (found["active_mean"], found["never_seen"], found["largest_eta_l"]) == (2, 0, None)
    assert found["advice"] == {}
    (tmp_path / "devices.csv").write_text("seconds_per_step\n1\n")
    code, out, _ = fedsum(*arguments[:-1], "--devices", "devices.csv", "--concurrency", 5, "--jitter", 0.2)
    assert code == 0
    assert "Theorem" not in out


class Custom:
    """An asynchronous schedule of a user's own; client 2 works for two rounds, and round 1 is empty."""

    n = 3

    def __init__(self, active, sent):
        self._active, self._sent = active, sent

    def active(self, seed, round):
        return np.array(self._active[round], dtype=int)

    def dispatch(self, seed, round):
        return np.array(self._sent[round], dtype=int)

    def describe(self, rounds=None):
        return fedsum.Pattern(N=3)


def test_a_schedule_of_ones_own():
    task = fedsum.tasks.Quadratic(np.ones((3, 1)), np.ones((3, 1)))
    options = {"rounds": 3, "local_steps": 1, "eta_l": 0.5, "dtype": torch.float64, "eval_every": 1}
    history = simulate(task, FedAvg(), Custom([[0], [], [2]], [[0, 2], [1], []]), **options)
    # x = 0.5 after client 0; client 2 computed its gradient, -1, at x = 0.
    assert history.x.item() == pytest.approx(1.0)
    assert [row["communication"] for row in history.rows] == [0, 3, 4, 5]
    assert "time" not in history.rows[0]
    for active, sent, message in (
        ([[0], [1], []], [[0], [], []], "schedule.active = 1: clients at work"),
        ([[0], [], []], [[0, 1], [1], []], "schedule.dispatch(round=1) = 1: clients without work"),
        ([[0], [], []], [[0, 5], [], []], "schedule.dispatch(seed=0, round=0) = 5"),
    ):
        with pytest.raises(InputError) as caught:
            simulate(task, FedAvg(), Custom(active, sent), **options)
        assert message in str(caught.value)


DEVICES = Devices(seconds_per_step=1.0)

BAD = [
    (lambda: Asynchronous(5, DEVICES, 6), "buffer = 6: a whole number from 1 to 5 (n)"),
    (lambda: Asynchronous(5, DEVICES, 4, 3), "buffer = 4: a whole number from 1 to 3 (concurrency)"),
    (lambda: Asynchronous(5, DEVICES, 1, 6), "concurrency = 6"),
    (lambda: Asynchronous(5, 1.0, 1), "devices = 1.0: fedsum.Devices("),
    (lambda: Asynchronous(5, Devices(seconds_per_step=[1, 2]), 1), "devices.n = 2: the schedule has 5 clients"),
    (lambda: Asynchronous(5, DEVICES, 1, jitter=-1), "jitter = -1"),
    (lambda: Asynchronous(5, DEVICES, 1).active(0, -1), "round = -1"),
    (lambda: FedAsync(alpha=1.5), "alpha = 1.5"),
    (lambda: FedAsync(power=-1), "power = -1"),
    (lambda: run(FedAsync(), schedule(), eta_g=0.5), "eta_g = 0.5: 1: FedAsync's alpha takes its place"),
    (lambda: run(FedAvg(), schedule(), devices=DEVICES), "an asynchronous schedule has its own devices"),
    (lambda: run(fedsum.FedSUMCR(printed_average=True), schedule()), "printed_average counts rounds"),
    (lambda: run(fedsum.Compressed(fedsum.FedSUMCR(printed_average=True)), schedule()), "printed_average counts"),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_input_is_one_clear_line(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_that_diverges_names_no_theory():
    with pytest.warns(UserWarning, match="theory does not cover asynchronous training"):
        run(FedBuff(), schedule(1), eta_l=1e6, eval_every=5)
