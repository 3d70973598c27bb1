"""A run is a folder: it survives kills of its process and damage to its files."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
import zlib
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import fedsum
from fedsum import InputError, simulate
from fedsum.runs import Run, environment, tensorfile
from fedsum.runs.checkpoint import Snapshot
from fedsum.runs.recorder import Recorder
from fedsum.runs.run_writer import RunFolder
from fedsum.tasks import Quadratic

HERE = Path(__file__).parent
TIMES = ("seconds", "eval_seconds")
SETTINGS = {"rounds": 30, "local_steps": 2, "eta_l": 0.05, "seed": 3, "eval_every": 4, "checkpoint_rounds": 5}


def go(folder=None, algorithm=None, **changed):
    task = changed.pop("task", None) or Quadratic.random(9, 6, noise=0.2)
    schedule = changed.pop("schedule", fedsum.Markov(9, on=0.6, off=0.8))
    return simulate(task, algorithm or fedsum.FedSUMCR(), schedule, folder=folder, **(SETTINGS | changed))


def stop_after(rounds):
    """An `on_round` that ends the run like a crash: nothing more is written to the folder."""

    def on_round(done):
        if done.round == rounds:
            raise ZeroDivisionError

    return on_round


def broken_off(folder, after, **changed):
    """A run that crashes. It waits for each checkpoint, so that the set of checkpoints is deterministic."""
    save = Recorder.save

    def save_and_wait(self, state):
        save(self, state)
        self.wait()

    with pytest.raises(ZeroDivisionError), mock.patch.object(Recorder, "save", save_and_wait):
        go(folder, on_round=stop_after(after), **changed)


def saved(folder):
    """The rounds of its checkpoints."""
    return [int(found) for found in re.findall(r"checkpoint of round (\d+)", (folder / "log").read_text())]


def timeless(found):
    return [{name: value for name, value in row.items() if name not in TIMES} for row in found]


def assert_same(one, other):
    assert timeless(one.rows) == timeless(other.rows)
    assert all(torch.equal(value, other.server[name]) for name, value in one.server.items())
    for mine, theirs in ((one.clients, other.clients), (one.memory, other.memory)):
        assert list(mine) == list(theirs)
        assert all(torch.equal(v, theirs[i][name]) for i in mine for name, v in mine[i].items())
    assert np.array_equal(one.delays.tau, other.delays.tau)
    assert np.array_equal(one.delays.gaps, other.delays.gaps)
    assert np.array_equal(one.delays.counts, other.delays.counts)


# Resuming.


@pytest.mark.parametrize("kills", [8, pytest.param(25, marks=pytest.mark.slow)])
@pytest.mark.parametrize("algorithm", ["FedSUMCR", "SCAFFOLD", "FedAWE", "MIFA"])
def test_killed_at_random_instants_it_ends_with_the_same_bits(algorithm, kills, tmp_path):
    def lives(folder, kills):
        command = [sys.executable, HERE / "killed.py", algorithm, folder, str(kills), "7"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    lives(tmp_path / "whole", 0)
    told = lives(tmp_path / "killed", kills)
    assert told.count("killed") == kills
    began = set(re.findall(r"began (\d+)", told))
    assert len(began) > kills / 4  # the kills happened in many places, not only at the start
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert timeless(Run.read(whole).rows) == timeless(Run.read(killed).rows)
    assert (whole / "model.safetensors").read_bytes() == (killed / "model.safetensors").read_bytes()
    states = [load_file(folder / "checkpoint.safetensors") for folder in (whole, killed)]
    assert states[0].keys() == states[1].keys()
    times = ("metrics", "crc32")  # metrics contain times
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items() if name not in times)
    assert Run.read(killed).state == "finished"
    assert not list(killed.glob(".*.part*"))


@pytest.mark.parametrize("algorithm", fedsum.algorithms.ALGORITHMS.values())
def test_every_algorithm_goes_on_where_it_was(algorithm, tmp_path):
    broken_off(tmp_path, 17, algorithm=algorithm())
    assert Run.read(tmp_path).round == 16
    assert saved(tmp_path) == [5, 10, 15]
    assert_same(go(tmp_path, algorithm=algorithm()), go(algorithm=algorithm()))
    assert "resumed after round 15" in (tmp_path / "log").read_text()


def test_a_finished_run_is_not_run_again(tmp_path):
    first = go(tmp_path)
    before = (tmp_path / "metrics.csv").read_text()
    again = go(tmp_path, on_round=stop_after(1))
    assert_same(first, again)
    assert (tmp_path / "metrics.csv").read_text() == before
    (tmp_path / "checkpoint.safetensors").unlink()
    for _ in range(2):
        with pytest.raises(InputError, match="finished and has no checkpoint"):
            go(tmp_path)
        assert (tmp_path / "metrics.csv").read_text() == before
        assert Run.read(tmp_path).state == "finished"


def test_what_a_folder_holds(tmp_path):
    history = go(tmp_path)
    config = tomllib.loads((tmp_path / "config.toml").read_text())
    assert config["rounds"] == 30
    assert config["algorithm"] == {"name": "FedSUMCR", "printed_average": False, "divide_by_seen": False}
    assert config["schedule"] == {"name": "Markov", "n": 9, "on": 0.6, "off": 0.8}
    assert config["task"]["name"] == "quadratic"
    assert config["environment"]["torch"] == torch.__version__
    assert config["environment"]["device"] == "cpu"
    assert Run.read(tmp_path).rows == history.rows
    assert torch.equal(load_file(tmp_path / "model.safetensors")["x"], history.x)
    assert not (tmp_path / "checkpoint.previous.safetensors").exists()


def test_a_change_anywhere_in_the_source_is_noted(tmp_path, monkeypatch):
    source = tmp_path / "src" / "fedsum"
    files = [source / "runs" / "environment.py", source / "engine" / "loop.py", tmp_path / "README.md"]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("one")
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    monkeypatch.setattr(environment, "__file__", str(files[0]))

    def state():
        return environment.environment(torch.device("cpu"))["git"]

    commit = state()
    assert re.fullmatch("[0-9a-f]{12}", commit)
    files[2].write_text("two")
    assert state() == commit
    files[1].write_text("two")
    assert state() == f"{commit} changed"


@pytest.mark.parametrize(
    "given", [["--token", "5e1f"], ["--token=5e1f"], ["--hub_API-key", "5e1f"], ["-password=5e1f"]]
)
def test_the_recorded_command_has_no_secret(tmp_path, monkeypatch, given):
    """Flower starts a ServerApp with its token on the command line; the report and a packed file show the command."""
    monkeypatch.setattr(sys, "argv", ["/usr/bin/flwr-serverapp", *given, "--tokenizer", "bert", "--rounds=5"])
    go(tmp_path, rounds=2)
    text = (tmp_path / "config.toml").read_text()
    assert "5e1f" not in text
    command = tomllib.loads(text)["environment"]["command"]
    assert command.startswith(f"flwr-serverapp {given[0].partition('=')[0]}")
    assert command.endswith("... --tokenizer bert --rounds=5")


def test_a_modules_weights_have_their_names(tmp_path):
    task = fedsum.tasks.vision("digits", clients=9)
    history = go(tmp_path, task=task, rounds=2)
    found = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(found[name], value) for name, value in history.model().state_dict().items())
    assert task.model(history.x + 1).load_state_dict(found)  # strict: the file has the parameters only
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        metadata = file.metadata()
    data = (tmp_path / "model.safetensors").read_bytes()
    tensors = data[8 + int.from_bytes(data[:8], "little") :]
    assert metadata == {"format": "pt", "crc32": f"{zlib.crc32(tensors):08x}"}


class Shaped(Quadratic):
    """A task whose model is neither a module nor a tensor."""

    def model(self, x):
        return {"shape": "round", "weights": x.tolist()}


class Extra(torch.nn.Linear):
    """A module whose state_dict has more than tensors."""

    def get_extra_state(self):
        return {"version": 1}

    def set_extra_state(self, state):
        assert state == {"version": 1}


def test_a_model_of_any_kind_is_saved(tmp_path):
    history = go(tmp_path / "own", task=Shaped(np.ones((9, 2)), np.ones((9, 2))), rounds=2)
    assert Run.read(tmp_path / "own").state == "finished"
    assert torch.equal(load_file(tmp_path / "own" / "model.safetensors")["x"], history.x)
    draw = torch.Generator().manual_seed(0)
    data = [(torch.randn(5, 3, generator=draw), torch.arange(5) % 2) for _ in range(9)]
    go(tmp_path / "extra", task=fedsum.tasks.Task(Extra(3, 2), torch.nn.functional.cross_entropy, data), rounds=2)
    assert Run.read(tmp_path / "extra").state == "finished"
    assert {"bias", "weight"} <= set(load_file(tmp_path / "extra" / "model.safetensors"))


# A run is resumed only with the same config.


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rounds": 31}, "rounds = 31: the run in"),
        ({"local_steps": 3}, "local_steps = 3"),
        ({"eta_l": 0.06}, "eta_l(0) = 0.06: the run in"),
        ({"eta_l": lambda t: 0.05 if t < 29 else 0.04}, "eta_l(29) = 0.04"),
        ({"eta_g": 0.5}, "eta_g = 0.5"),
        ({"batch_size": 5}, "batch_size = 5"),
        ({"seed": 4}, "seed = 4"),
        ({"eval_every": 5}, "eval_every = 5"),
        ({"eval_last": 2}, "eval_last = 2"),
        ({"eval_model": "server"}, "eval_model = 'server': the run in"),
        ({"dtype": torch.float64}, "dtype = 'float64'"),
        ({"precision": "tf32"}, "precision = 'tf32'"),
        ({"deterministic": True}, "deterministic = True"),
        ({"algorithm": fedsum.FedSUM()}, "algorithm.name = 'FedSUM'"),
        ({"algorithm": fedsum.FedSUMCR(printed_average=True)}, "algorithm.printed_average = True"),
        ({"schedule": fedsum.Markov(9, on=0.6, off=0.81)}, "schedule.off = 0.81"),
        ({"schedule": fedsum.Uniform(9, 3)}, "schedule.name = 'Uniform'"),
        ({"task": Quadratic.random(9, 6, noise=0.3)}, "task.noise = 0.3"),
        ({"task": Quadratic.random(9, 6, noise=0.2, seed=1)}, "task.seed = 1"),
    ],
)
def test_another_config_is_refused_by_the_name_of_its_field(changed, message, tmp_path):
    broken_off(tmp_path, 7)
    with pytest.raises(InputError) as caught:
        go(tmp_path, **changed)
    assert message in str(caught.value)
    assert_same(go(tmp_path), go())


@pytest.mark.parametrize("changed", [{"engine": "loop"}, {"checkpoint_rounds": 2}, {"checkpoint_seconds": 1.0}])
def test_how_it_is_computed_may_change(changed, tmp_path):
    broken_off(tmp_path, 7)
    assert_same(go(tmp_path, **changed), go())


def test_functions_are_compared_by_their_values(tmp_path):
    broken_off(tmp_path, 7, eta_l=lambda t: 0.05 / np.sqrt(t / 10 + 1))
    again = go(tmp_path, eta_l=fedsum.InverseSqrt(0.05))
    assert_same(again, go(eta_l=fedsum.InverseSqrt(0.05)))


def test_a_function_as_participation(tmp_path):
    schedule = fedsum.Independent(9, lambda t: 0.2 + 0.5 * (t % 2))
    broken_off(tmp_path, 7, schedule=schedule)
    with pytest.raises(InputError, match=r"schedule\.p\.values"):
        go(tmp_path, schedule=fedsum.Independent(9, lambda t: 0.2 + 0.6 * (t % 2)))
    assert_same(go(tmp_path, schedule=schedule), go(schedule=schedule))


def test_tasks_without_a_name_are_compared_by_their_data(tmp_path):
    data = [(torch.randn(20, 3), torch.randint(2, (20,))) for _ in range(9)]

    def task(data):
        torch.manual_seed(0)
        return fedsum.tasks.Task(torch.nn.Linear(3, 2), torch.nn.functional.cross_entropy, data)

    broken_off(tmp_path, 7, task=task(data))
    other = [(inputs + (i == 4), targets) for i, (inputs, targets) in enumerate(data)]
    with pytest.raises(InputError, match=r"task\.sha256"):
        go(tmp_path, task=task(other))
    assert_same(go(tmp_path, task=task(data)), go(task=task(data)))


class Odd:
    """A schedule without dataclass fields."""

    def __init__(self, n, size):
        self.n, self._size = n, size

    def active(self, seed, round):
        return np.arange(self._size)

    def describe(self, rounds=None):
        return fedsum.Pattern(N=self.n)


def linear(activation=None, weights=None, prepare=None, loss=torch.nn.functional.cross_entropy):
    draw = torch.Generator().manual_seed(0)
    data = [(torch.randn(12, 3, generator=draw), torch.arange(12) % 2) for _ in range(9)]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), activation or torch.nn.ReLU(), torch.nn.Linear(4, 2))
    return fedsum.tasks.Task(model, loss, data, weights=weights, prepare=prepare)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"schedule": Odd(9, 3)}, {"schedule": Odd(9, 2)}),
        ({"task": linear()}, {"task": linear(torch.nn.Tanh())}),
        ({"task": linear()}, {"task": linear(weights=[0.2] + [0.1] * 8)}),
        ({"task": linear()}, {"task": linear(prepare=lambda x, dtype: (x * 5).to(dtype))}),
        (
            {"task": linear(loss=lambda out, y: torch.nn.functional.cross_entropy(out, y))},
            {"task": linear(loss=lambda out, y: 2 * torch.nn.functional.cross_entropy(out, y))},
        ),
        ({"rounds": 10002, "eta_l": lambda t: 0.05 / (t + 1)}, {"rounds": 10002, "eta_l": lambda t: 0.04 / (t + 1)}),
    ],
)
def test_what_has_no_name_is_compared_all_the_same(before, now, tmp_path):
    broken_off(tmp_path, 7, **before)
    with pytest.raises(InputError, match="the run in"):
        go(tmp_path, **now)
    with pytest.raises(ZeroDivisionError):
        go(tmp_path, on_round=stop_after(9), **before)  # the same settings resume the run


def test_many_rounds_of_a_function_are_known_by_its_values(tmp_path):
    broken_off(tmp_path, 7, rounds=10002, eta_l=lambda t: 0.05 / np.sqrt(t / 10 + 1))
    with pytest.raises(ZeroDivisionError):
        go(tmp_path, rounds=10002, eta_l=fedsum.InverseSqrt(0.05), on_round=stop_after(9))


def test_numbers_of_other_kinds(tmp_path):
    class Measured(Quadratic):
        def evaluate(self, x):
            return {"train_loss": np.float32(0.5), "more": torch.tensor(2.0), "positive": bool(x.sum() >= 0)}

    task = Measured(np.ones((9, 2)), np.zeros((9, 2)))
    go(tmp_path, task=task, rounds=np.int64(6), seed=np.int64(3), eta_g=np.float32(0.5), local_steps=np.int8(2))
    run = Run.read(tmp_path)
    assert (run.problem, run.rows[-1]["train_loss"], run.rows[-1]["positive"]) == ("", 0.5, 1)
    assert Run.read(tmp_path).rows[-1]["more"] == 2.0


def test_a_damaged_status_does_not_matter(tmp_path):
    broken_off(tmp_path, 7)
    (tmp_path / "status.toml").write_bytes(b"\0\0")
    assert_same(go(tmp_path), go())


def test_a_trace_may_move(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trace.csv").write_text("round,client\n0,0\n1,1\n")
    one, other = (fedsum.Trace.read(tmp_path / name / "trace.csv", clients=9, repeat=True) for name in ("a", "b"))
    broken_off(tmp_path / "run", 7, schedule=one)
    assert_same(go(tmp_path / "run", schedule=other), go(schedule=one))


def test_ctrl_c_while_the_model_is_not_finite(tmp_path):
    def on_round(done):
        if done.round == 20:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="stopped after round 20, which diverged"):
        go(tmp_path, eta_l=1e30, rounds=400, eval_every=300, on_round=on_round)


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("all of it")
    with pytest.raises(InputError, match=r"it has thesis.tex and no config.toml"):
        go(tmp_path)


def test_two_processes_do_not_write_one_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("fedsum.runs.run_writer._PATIENCE", 0.2)
    held = RunFolder(tmp_path)
    with pytest.raises(InputError, match=f"another process writes to it .process {os.getpid()} on"):
        go(tmp_path)
    held.close()
    go(tmp_path)


@pytest.mark.parametrize("path", ["file", "file/below", "/proc/nowhere"])
def test_folders_that_cannot_be(path, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="a folder that can be created and written to"):
        go(tmp_path / path)


# Stopping.


def asked(number):
    """An `on_round` that asks the run to stop in its tenth round."""
    return lambda done: done.round == 10 and signal.raise_signal(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_waits_for_the_round_and_says_how_to_go_on(number, tmp_path):
    with pytest.raises(KeyboardInterrupt) as stop:
        go(tmp_path, on_round=asked(number), checkpoint_rounds=None)
    assert str(stop.value) == f"stopped after round 10; resume with: fedsum resume {tmp_path}"
    assert Run.read(tmp_path).state == "stopped"
    began = []
    assert_same(go(tmp_path, on_round=lambda done: began.append(done.round)), go())
    assert began[0] == 11


def test_ctrl_c_twice_does_not_wait(tmp_path):
    def on_round(done):
        if done.round == 10:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, on_round=on_round, checkpoint_rounds=None)
    assert not (tmp_path / "checkpoint.safetensors").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_diverged_run_keeps_its_last_good_checkpoint(tmp_path):
    with pytest.warns(UserWarning, match="diverged by round"):
        history = go(tmp_path, eta_l=1e6, rounds=100, checkpoint_rounds=1, eval_every=10)
    found = Run.read(tmp_path)
    assert (found.state, found.round) == ("diverged", history.diverged)
    assert "theory guarantees that FedSUM-CR converges up to eta_l = " in found.reason
    assert Run.read(tmp_path).rows[-1]["round"] == history.diverged
    kept = load_file(tmp_path / "checkpoint.safetensors")
    assert kept["server.x"].isfinite().all()
    assert 0 < len(kept["delays.tau"]) < history.diverged
    assert not (tmp_path / "model.safetensors").exists()


def test_a_failed_run_says_why(tmp_path):
    broken_off(tmp_path, 7)
    assert (Run.read(tmp_path).state, Run.read(tmp_path).reason) == ("failed", "ZeroDivisionError")


# Files that break.


def damages():
    def cut(share):
        return lambda data: data[: int(len(data) * share)]

    def flip(share):
        return lambda data: data[: (at := int(len(data) * share))] + bytes([data[at] ^ 4]) + data[at + 1 :]

    yield from ((f"cut to {share}", cut(share)) for share in (0, 0.001, 0.3, 0.999))
    yield from ((f"flipped at {share}", flip(share)) for share in (0.0, 0.1, 0.5, 0.9999))
    yield "longer", lambda data: data + b"x"
    yield "zeros", lambda data: bytes(len(data))


@pytest.mark.parametrize(("name", "damage"), list(damages()))
def test_a_broken_checkpoint_gives_way_to_the_one_before(name, damage, tmp_path):
    broken_off(tmp_path, 17)
    newest = tmp_path / "checkpoint.safetensors"
    newest.write_bytes(damage(newest.read_bytes()))
    assert_same(go(tmp_path), go())
    log = (tmp_path / "log").read_text()
    assert "checkpoint.safetensors cannot be used" in log
    assert "resumed after round 10 from checkpoint.previous.safetensors" in log


def test_two_broken_checkpoints_are_an_error_and_not_a_new_start(tmp_path):
    broken_off(tmp_path, 17)
    for path in tmp_path.glob("checkpoint*"):
        path.write_bytes(path.read_bytes()[:-5])
    metrics = (tmp_path / "metrics.csv").read_text()
    with pytest.raises(InputError, match="no other checkpoint is valid"):
        go(tmp_path)
    assert (tmp_path / "metrics.csv").read_text() == metrics


def test_a_broken_metrics_line_is_mended(tmp_path):
    broken_off(tmp_path, 17)
    metrics = tmp_path / "metrics.csv"
    metrics.write_text(metrics.read_text() + "20,0.12\x00")
    assert [row["round"] for row in Run.read(tmp_path).rows] == [0, 4, 8, 12, 16]
    assert_same(go(tmp_path), go())
    assert timeless(Run.read(tmp_path).rows) == timeless(go().rows)


def test_a_broken_config_is_refused(tmp_path):
    broken_off(tmp_path, 7)
    (tmp_path / "config.toml").write_text("rounds = ")
    with pytest.raises(InputError, match="a TOML file written by fedsum"):
        go(tmp_path)


def test_a_full_disk_stops_the_run_and_loses_nothing_before(tmp_path, monkeypatch):
    write, calls = tensorfile.write, []

    def full(path, entries, metadata):
        write(path, entries, metadata)
        calls.append(path)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tensorfile, "write", full)
    with pytest.raises(
        OSError, match=r"could not be written .No space left on device.; the previous checkpoint is intact"
    ):
        go(tmp_path)
    assert Run.read(tmp_path).state == "failed"
    assert "No space left" in Run.read(tmp_path).reason
    assert Run.read(tmp_path).reason.endswith(f"free disk space, then resume with: fedsum resume {tmp_path}")
    monkeypatch.undo()
    assert not list(tmp_path.glob(".*.part*"))
    assert_same(go(tmp_path), go())
    assert f"resumed after round {saved(tmp_path)[0]} from checkpoint.safetensors" in (tmp_path / "log").read_text()


FULL = """
import sys, fedsum
import numpy as np
task = fedsum.tasks.Quadratic(np.ones((20, 300)), np.random.default_rng(0).standard_normal((20, 300)))
run = lambda: fedsum.simulate(task, fedsum.FedSUMCR(), fedsum.Cyclic(20, 2), rounds=60, local_steps=1, eta_l=0.1,
                              folder=sys.argv[1], checkpoint_rounds=1)
try:
    run()
    print("no error")
except OSError as error:
    print(error)
"""


def test_a_disk_that_is_really_full(tmp_path):
    script = tmp_path / "full.py"
    script.write_text(FULL)
    inside = f"mount -t tmpfs -o size=96k tmpfs {tmp_path}/disk && {sys.executable} {script} {tmp_path}/disk/run"
    (tmp_path / "disk").mkdir()
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("no mount namespace can be made here")
    found = subprocess.run(["unshare", "-rm", "sh", "-c", inside], capture_output=True, text=True, check=True)
    assert "could not be written (No space left on device); the previous checkpoint is intact" in found.stdout
    assert "resume with: the same call of simulate" in found.stdout  # a file cannot describe the task's arrays


# Checkpoints during training.


def test_a_snapshot_is_of_one_moment_however_late_it_is_written(tmp_path):
    d, ids = 500_000, np.arange(40)
    bank = fedsum.engine.StateBank({"h": torch.zeros(d), "E": torch.tensor(0.0, dtype=torch.float64)})
    bank.scatter(ids, {"h": torch.arange(40.0)[:, None].repeat(1, d), "E": torch.arange(40.0, dtype=torch.float64)})
    frozen = bank.freeze()
    draw, pieces = np.random.default_rng(0), []
    assert frozen.ids == list(range(40))
    for name in ("E", "h"):
        for piece in frozen.read(name):
            pieces.append(piece.clone())
            some = np.sort(draw.choice(60, 5, replace=False))  # clients in the snapshot, and new clients
            bank.scatter(some, {"h": torch.full((5, d), -1.0), "E": torch.full((5,), -1.0, dtype=torch.float64)})
    assert len(pieces) > 4
    scalars, vectors = (torch.cat([piece for piece in pieces if piece.dim() == dim]) for dim in (1, 2))
    assert torch.equal(scalars, torch.arange(40.0, dtype=torch.float64))
    assert torch.equal(vectors, torch.arange(40.0)[:, None].repeat(1, d))
    frozen.release()
    assert any((bank[i]["h"] == -1).all() for i in range(40))


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    write, further, went_on = Snapshot.write, threading.Event(), []

    def waits(self, folder):
        went_on.append(further.wait(20))  # for rounds after the round of the checkpoint
        write(self, folder)

    monkeypatch.setattr(Snapshot, "write", waits)

    def on_round(done):
        if done.round > 52:
            further.set()

    whole = go(tmp_path, rounds=200, checkpoint_rounds=50, on_round=on_round)
    assert went_on[0]
    assert_same(whole, go(rounds=200))


def test_tensor_files_are_what_the_library_reads(tmp_path):
    entries = {
        "odd": torch.randn(3, 5),
        "scalar": torch.tensor(1.5, dtype=torch.float64),
        "long": torch.arange(7),
        "empty": torch.zeros(0, 4),
        "bytes": torch.arange(9, dtype=torch.uint8),
        "yes": torch.tensor([True, False]),
        "half": torch.randn(3).half(),
        "turned": torch.randn(4, 6).T,
    }
    path = tmp_path / "file.safetensors"
    tensorfile.write(path, {name: tensorfile.Entry.of(value) for name, value in entries.items()}, {"a": "b"})
    found = load_file(path)
    assert all(torch.equal(found[name], value) for name, value in entries.items())
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"a": "b"}
    tensorfile.verify(path)


def test_checkpoints_come_by_the_clock(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def on_round(done):
        now[0] += 1.0

    go(tmp_path, checkpoint_rounds=None, checkpoint_seconds=9.5, on_round=on_round)
    first, *_, last = saved(tmp_path)
    assert (first, last) == (10, 30)


def test_a_checkpoint_of_another_kind_is_refused(tmp_path):
    broken_off(tmp_path, 7)
    path = tmp_path / "checkpoint.safetensors"
    tensorfile.write(path, {"x": tensorfile.Entry.of(torch.zeros(3))}, {"format": "fedsum checkpoint 99"})
    with pytest.raises(InputError, match="its format is 'fedsum checkpoint 99'"):
        go(tmp_path)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"folder = '.*nope': no such folder"):
        Run.read(tmp_path / "nope")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(InputError, match=r"no run in it: a run is a folder with a config.toml and a status.toml"):
        Run.read(tmp_path)
    assert Run.read_or_new(tmp_path).state == "new"
