"""Sweeps: expanded, run side by side, killed, restarted, searched; on this machine and on Ray."""

import errno
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from fedsum import InputError
from fedsum.cli import progress
from fedsum.report import final_table
from fedsum.report.page import render
from fedsum.runs import (
    LocalPool,
    Run,
    RunFolder,
    best,
    best_per_combination,
    expand,
    find_runs,
    not_begun,
    pools,
    read_runs,
    run_all,
)
from fedsum.runs.execute import execute_quietly
from fedsum.spec import (
    RunSpec,
    ScheduleSpec,
    TaskSpec,
    dump_algorithm,
    parse_algorithm,
    read_settings,
    toml_text,
    with_settings,
)

HERE = Path(__file__).parent
TIMES = ("seconds", "eval_seconds")
SHARED = {"shared": True, "keep_checkpoint": False, "tensorboard": False}
SMALL = """
rounds = 150
local_steps = 2
eta_l = 0.05
eval_every = 5
checkpoint_rounds = 10
task = {name = "quadratic", n = 8, d = 200, noise = 0.1}
algorithm = "FedSUM"
schedule = {name = "uniform", size = 3}
"""
SWEEP = (
    SMALL
    + """
[sweep]
algorithm = ["FedAvg", "FedSUM-CR", "MIFA", {name = "FedAU", cutoff = 5}]
schedule = [{name = "uniform", size = 3}, {name = "cyclic", size = 2}, {name = "independent", p = 0.4}]
seed = [0, 1]
"""
)


def written(path, text):
    path.write_text(text)
    return path


def timeless(folder):
    keep = [{k: v for k, v in row.items() if k not in TIMES} for row in Run.read(folder).rows]
    return keep, (folder / "model.safetensors").read_bytes()


def command(*arguments):
    return [sys.executable, "-c", "from fedsum.cli import main; main()", *map(str, arguments)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The sweep of 24 runs, run once without faults."""
    folder = tmp_path_factory.mktemp("undisturbed")
    file = written(folder / "sweep.toml", SWEEP)
    stands = run_all(expand(read_settings(file), folder / "runs"), LocalPool(2))
    assert [stand.state for stand in stands.values()] == ["finished"] * 24
    return folder / "runs"


def assert_same_runs(found, wanted):
    assert [path.name for path in find_runs(found)] == [path.name for path in find_runs(wanted)]
    for run in find_runs(found):
        assert timeless(run) == timeless(wanted / run.name)
        assert Run.read(run).state == "finished"


def test_a_sweep_killed_and_restarted_completes_each_run_once(tmp_path, undisturbed):
    file = written(tmp_path / "sweep.toml", SWEEP)
    arguments = command("run", file, "--folder", tmp_path / "runs", "--jobs", 2)

    def finished():
        return {path for path in find_runs(tmp_path / "runs") if Run.read(path).state == "finished"}

    def run_until(count, kill):
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(finished()) < count and process.poll() is None:
            time.sleep(0.02)
        kill(process)
        process.wait()

    run_until(4, lambda process: process.kill())
    before = len(finished())
    assert 4 <= before < 24
    time.sleep(0.1)
    run_until(before + 5, lambda process: process.send_signal(signal.SIGTERM))
    done = {path: (path / "metrics.csv").stat().st_mtime_ns for path in finished()}
    assert before < len(done) < 24
    assert subprocess.run(arguments, check=False, capture_output=True).returncode == 0
    assert {path: (path / "metrics.csv").stat().st_mtime_ns for path in done} == done  # not touched again
    assert_same_runs(tmp_path / "runs", undisturbed)
    for run in find_runs(tmp_path / "runs"):
        assert (run / "log").read_text().count("finished after round 150") == 1


def test_workers_do_not_outlive_a_killed_sweep(tmp_path):
    file = written(tmp_path / "sweep.toml", SWEEP.replace("rounds = 150", "rounds = 100000"))
    process = subprocess.Popen(command("run", file, "--folder", tmp_path / "runs", "--jobs", 2))
    while not list((tmp_path / "runs").glob("*/checkpoint.safetensors")):
        time.sleep(0.05)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    while any(Run.read(run).state == "running" for run in find_runs(tmp_path / "runs")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert {Run.read(run).state for run in find_runs(tmp_path / "runs")} == {"stopped"}


def test_a_worker_that_dies_is_replaced(tmp_path, undisturbed):
    runs = expand(read_settings(written(tmp_path / "sweep.toml", SWEEP)), tmp_path / "runs")
    killed = []

    def on_look(stands):
        busy = [run for run in runs if stands[run.name].state == "running"]
        if busy and (busy[0].folder / "checkpoint.safetensors").exists() and not killed:
            killed.append(int((busy[0].folder / ".lock").read_text().split()[1]))
            os.kill(killed[0], signal.SIGKILL)

    stands = run_all(runs, LocalPool(2), on_look=on_look)
    assert killed
    assert [stand.state for stand in stands.values()] == ["finished"] * 24
    assert_same_runs(tmp_path / "runs", undisturbed)


def test_ray_gives_the_same_numbers_though_a_worker_dies(tmp_path, undisturbed):
    alone = ["unshare", "-rnpf", "--mount-proc"]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("no namespaces can be made here, and Ray would listen beyond loopback")
    file = written(tmp_path / "sweep.toml", SWEEP)
    script = [*alone, sys.executable, HERE / "ray_sweep.py", file, "runs"]
    found = subprocess.run(script, check=False, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert "24 finished, 1 killed" in found.stdout, found.stdout + found.stderr
    assert_same_runs(tmp_path / "runs", undisturbed)


SLOW = """
import time
from fedsum.tasks import Quadratic

class Slow(Quadratic):
    def gradient(self, x, client, batch):
        time.sleep(30)
        return super().gradient(x, client, batch)

def task():
    whole = Quadratic.random(4, 2)
    return Slow(whole.curvature, whole.centers)
"""


def test_ctrl_c_twice_does_not_wait_for_a_round(tmp_path):
    slow = written(tmp_path / "slow.py", SLOW)
    text = (
        SMALL.replace('{name = "quadratic", n = 8, d = 200, noise = 0.1}', f'"{slow}:task"') + "[sweep]\nseed = [0]\n"
    )
    file = written(tmp_path / "sweep.toml", text)
    process = subprocess.Popen(command("run", file, "--folder", tmp_path / "runs"), stderr=subprocess.PIPE)
    while not list((tmp_path / "runs").glob("*/metrics.csv")):
        time.sleep(0.1)
    time.sleep(0.5)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert time.monotonic() - began < 20
    assert process.returncode == 130


def test_what_a_worker_does(tmp_path):
    """The worker's code in this process; the tests above run it in other processes."""
    table = tomllib.loads(SMALL) | {"rounds": 6}
    done = execute_quietly(table, tmp_path / "a", **SHARED)
    assert (done.state, done.round) == ("finished", 6)
    assert not (tmp_path / "a/checkpoint.safetensors").exists()
    execute_quietly(table, tmp_path / "b", shared=False, keep_checkpoint=True, tensorboard=True)
    assert (tmp_path / "b/checkpoint.safetensors").exists()
    assert (tmp_path / "b/tensorboard").exists()
    assert execute_quietly(table | {"eta_l": 1e30}, tmp_path / "c", **SHARED).state == "diverged"
    failed = execute_quietly(table | {"task": {"name": "quadratic", "n": 8, "d": -1}}, tmp_path / "d", **SHARED)
    assert failed == Run.read(tmp_path / "d")
    assert (failed.state, failed.reason) == ("failed", "task.d = -1: a whole number from 1 up")
    again = execute_quietly(table | {"rounds": 7}, tmp_path / "a", **SHARED)
    assert (again.state, "rounds = 7: the run in" in again.reason) == ("failed", True)
    assert Run.read(tmp_path / "a").state == "finished"  # existing runs keep their state


def test_a_run_of_another_process_is_no_failure(tmp_path, monkeypatch, fedsum):
    text = SMALL.replace("rounds = 150", "rounds = 5") + "[sweep]\nseed = [0, 1, 2]\n"
    (tmp_path / "s.toml").write_text(text)
    monkeypatch.setattr("fedsum.runs.run_writer._PATIENCE", 0.0)
    folder = tmp_path / "runs/s"

    class ThisProcess:
        """Runs the jobs here. While seed 0 runs, another process executes seed 1 and finishes seed 2."""

        width, shared = 1, False

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            if self.others:
                self.others.pop().close()

        def submit(self, call, *arguments, **options):
            future = Future()
            future.set_result(call(*arguments, **options))
            if not self.others:
                self.others.append(RunFolder(folder / "seed=1"))
                execute_quietly(arguments[0] | {"seed": 2}, folder / "seed=2", **SHARED)
            return future

    ThisProcess.others = []
    monkeypatch.setattr("fedsum.cli.running.LocalPool", lambda jobs: ThisProcess())
    code, out, error = fedsum("run", "s.toml")
    assert (code, "2 of 3 runs finished" in out) == (0, True), out + error
    assert f"seed=1: running: in another process (process {os.getpid()} on" in out
    assert "failed" not in out
    # The other process finishes the run after this one has found its folder in use.
    monkeypatch.setattr("fedsum.runs.sweep.execute_quietly", lambda table, path, **options: _finish_first(table, path))
    assert "3 of 3 runs finished" in fedsum("resume", "runs/s", "--trust")[1]


def _finish_first(table, folder):
    """What a worker returns whose run another process finished after the worker found its folder in use."""
    execute_quietly(table, folder, **SHARED)
    return Run(folder, "failed", reason="this run is finished and has no checkpoint")


def test_one_that_fails_is_reported_and_retried_and_one_that_diverges_is_not(tmp_path, fedsum):
    trace = tmp_path / "trace.csv"
    text = SMALL.replace("rounds = 150", "rounds = 5").replace('schedule = {name = "uniform", size = 3}', "")
    text += f"""
    [sweep]
    schedule = ["Uniform", {{name = "Trace", path = "{trace}", clients = 8}}]
    eta_l = [0.05, 1e30]
    """
    text = text.replace('["Uniform",', '[{name = "Uniform", size = 3},')
    trace.write_text("round,client\n" + "".join(f"{t},{t % 8}\n" for t in range(6)))
    written(tmp_path / "sweep.toml", text)
    trace_text = trace.read_text()
    code, _, error = fedsum("run", "sweep.toml", "--folder", "none", "--set", "x=1")
    assert (code, "x = 1: no such setting" in error) == (2, True)
    runs = expand(read_settings(tmp_path / "sweep.toml"), tmp_path / "runs")
    trace.unlink()  # deleted after the check
    first = run_all(runs, LocalPool(1))
    states = {name: stand.state for name, stand in first.items()}
    assert states == {
        "Uniform,eta_l=0.05": "finished",
        "Uniform,eta_l=1e+30": "diverged",
        "Trace,eta_l=0.05": "failed",
        "Trace,eta_l=1e+30": "failed",
    }
    assert "an existing file ending in .csv" in first["Trace,eta_l=0.05"].reason
    trace.write_text(trace_text)
    again = run_all(runs, LocalPool(1))
    assert {name: stand.state for name, stand in again.items()} == {
        "Uniform,eta_l=0.05": "finished",
        "Uniform,eta_l=1e+30": "diverged",
        "Trace,eta_l=0.05": "finished",
        "Trace,eta_l=1e+30": "diverged",
    }
    third = run_all(runs, LocalPool(1))
    assert {name: stand.state for name, stand in third.items()} == {n: stand.state for n, stand in again.items()}


# Files.


def test_expanding():
    table = with_settings({}, [])
    table = tomllib.loads(SMALL) | {
        "sweep": {
            "task.d": [3, 4],
            "algorithm, eta_l": [["FedAvg", 0.1], [{"name": "FedAU", "cutoff": 7}, 0.2]],
            "schedule": [{"name": "Uniform", "size": 2}, {"name": "Uniform", "size": 3}],
        }
    }
    runs = expand(table, Path("there"))
    assert len(runs) == 8
    assert runs[0].name == "d=3,FedAvg,eta_l=0.1,Uniform-size=2"
    assert runs[0].folder == Path("there") / runs[0].name
    last = runs[-1]
    assert last.table["task"] == {"name": "quadratic", "n": 8, "d": 4, "noise": 0.1}
    assert last.table["algorithm"] == {"name": "FedAU", "cutoff": 7}
    assert (last.table["eta_l"], last.table["schedule"]["size"]) == (0.2, 3)
    assert "sweep" not in last.table


def test_the_file_of_a_sweep_keeps_the_order_of_its_axes():
    adam = {"name": "Adam", "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-3}
    wide = {"name": "ServerOpt", "algorithm": {"name": "FedSUM", "divide_by_seen": True}, "optimiser": adam}
    sweep = {
        "algorithm": ["FedAvg", wide],
        "task.d": [3],
        "schedule": [wide, wide],
        "note": ['a "q"\n\u00e9'],
        "seed": [0, 1],
    }
    table = tomllib.loads(SMALL) | {"sweep": sweep}
    again = tomllib.loads(toml_text(table))
    assert again == table
    assert list(again["sweep"]) == list(sweep)


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({"algorithm": "FedSUM"}, "sweep.algorithm = 'FedSUM': a list of at least one value"),
        ({"algorithm": []}, "a list of at least one value"),
        ({"algorithm": ["FedSUM", "FedSUM"]}, "the same values twice"),
        ({"algorithm": ["FedSUN"]}, "did you mean 'FedSUM'?"),
        ({"algorithm, seed": [["FedSUM"]]}, "a list of 2 values"),
        ({"sed": [1]}, "sed = 1: no such setting; did you mean 'seed'?"),
        ({"eta_l.eta_0": [1]}, "eta_l is not a table"),
        ([1], "sweep = [1]: a table"),
    ],
)
def test_sweeps_that_are_refused(sweep, message):
    with pytest.raises(InputError) as caught:
        expand(tomllib.loads(SMALL) | {"sweep": sweep}, Path("there"))
    assert message in str(caught.value)


def test_include_and_set(tmp_path):
    written(tmp_path / "base.toml", SMALL)
    (tmp_path / "below").mkdir()
    file = written(tmp_path / "below" / "mine.toml", 'include = "../base.toml"\nrounds = 7\ntask = {d = 9}\n')
    table = with_settings(
        read_settings(file), ["schedule.size=2", "algorithm=FedAvg", "eta_l={name = 'InverseSqrt', eta_0 = 0.5}"]
    )
    assert table["rounds"] == 7
    assert table["task"] == {"name": "quadratic", "n": 8, "d": 9, "noise": 0.1}
    assert table["schedule"] == {"name": "uniform", "size": 2}
    assert table["algorithm"] == "FedAvg"
    assert RunSpec.parse(table).options.record(0, 8, 1).eta_l == 0.5
    other = written(tmp_path / "other.toml", 'include = ["base.toml"]\ntask = {name = "digits"}\n')
    assert read_settings(other)["task"] == {"name": "digits"}  # another task replaces the included table
    written(tmp_path / "loop.toml", 'include = "loop.toml"')
    with pytest.raises(InputError, match="levels of included files"):
        read_settings(tmp_path / "loop.toml")


@pytest.mark.parametrize(
    ("eta_l", "message"),
    [
        ([0.1, 0.2], "eta_l = '2 values': one value for each of 150 rounds"),
        ([0.1] * 149 + ["a"], "eta_l = 'a'"),
        ([0.1] * 149 + [-1.0], "eta_l = -1.0"),
    ],
)
def test_rates_in_a_list_are_checked_beforehand(eta_l, message):
    with pytest.raises(InputError) as caught:
        RunSpec.parse(tomllib.loads(SMALL) | {"eta_l": eta_l})
    assert message in str(caught.value)
    RunSpec.parse(tomllib.loads(SMALL) | {"eta_l": [0.1] * 150})


def test_a_grid_search_finds_what_other_runs_include(tmp_path, fedsum):
    written(tmp_path / "base.toml", SMALL)
    grid = """include = "base.toml"
    algorithm = "FedAvg"
    eta_l = {name = "InverseSqrt"}
    [sweep]
    "eta_l.eta_0, eta_g" = [[0.0005, 100.0], [0.05, 1.0], [0.01, 5.0]]
    """
    written(tmp_path / "grid.toml", grid)
    code, out, _ = fedsum("grid", "grid.toml", "--by", "error", "--folder", "found")
    assert code == 0
    stands = {run.name: Run.read(run) for run in find_runs(tmp_path / "found")}
    winner = min(stands, key=lambda name: stands[name].last["error"])  # as over the last rounds
    assert f"best: {winner}" in out
    chosen = tomllib.loads((tmp_path / "found" / "best.toml").read_text())
    eta_0, eta_g = (float(part.split("=")[1]) for part in winner.split(","))
    assert chosen == {"eta_l": {"name": "InverseSqrt", "eta_0": eta_0}, "eta_g": eta_g}
    written(tmp_path / "mine.toml", 'include = ["base.toml", "found/best.toml"]\nrounds = 3\n')
    code, out, _ = fedsum("run", "mine.toml")
    assert code == 0
    used = tomllib.loads((tmp_path / "runs/mine/config.toml").read_text())
    assert (used["eta_l"]["eta_0"], used["eta_g"]) == (eta_0, eta_g)
    code, _, error = fedsum("grid", "grid.toml", "--by", "errer", "--folder", "other")
    assert (code, "by = 'errer': did you mean 'error'?" in error) == (2, True)
    assert not (tmp_path / "other").exists()  # nothing was run for it
    code, _, error = fedsum("grid", "grid.toml", "--by", "test_accuracy", "--folder", "found")
    assert (code, "by = 'test_accuracy': " in error) == (2, True)
    code, _, error = fedsum("grid", "grid.toml", "--folder", "other")  # fedsum knows the default, this task does not
    assert (code, "by = 'test_accuracy': " in error, "train_loss" in error) == (2, True, True)
    assert not (tmp_path / "other").exists()
    code, _, error = fedsum("grid", "mine.toml")
    assert (code, "a table [sweep]" in error) == (2, True)
    for axes in ("seed = [0, 1]", '"task.seed" = [0, 1]', '"seed, task.seed" = [[0, 0], [1, 1]]'):
        written(tmp_path / "seeds.toml", f"{SMALL}[sweep]\n{axes}\n")
        code, _, error = fedsum("grid", "seeds.toml")
        assert (code, "other than seed," in error) == (2, True)


@pytest.mark.parametrize(
    ("setting", "way"),
    [
        ("seed=3", "sweep.seed=[...]"),
        ("algorithm=FedSUM", 'sweep."algorithm, eta_l"=[...]'),
        ("algorithm.cutoff=3", 'sweep."algorithm, eta_l"=[...]'),
        ("task.d=3", 'sweep."task.d"=[...]'),
    ],
)
def test_a_setting_that_the_sweep_overwrites_is_refused(setting, way):
    axes = {"seed": [0], "algorithm, eta_l": [["FedAvg", 0.1]], "task.d": [4]}
    with pytest.raises(InputError) as caught:
        with_settings(tomllib.loads(SMALL) | {"sweep": axes}, [setting])
    assert way in str(caught.value)
    changed = with_settings(tomllib.loads(SMALL) | {"sweep": axes}, ["task.noise=0.5", "sweep.seed=[3]"])
    assert (changed["task"]["noise"], changed["sweep"]["seed"]) == (0.5, [3])


def test_a_folder_has_one_sweep_which_may_grow(tmp_path, fedsum):
    written(tmp_path / "one.toml", SMALL + "[sweep]\nseed = [0]\n")
    assert fedsum("run", "one.toml", "--folder", "here")[0] == 0
    assert fedsum("run", "one.toml", "--folder", "here", "--set", "sweep.seed=[0, 1]", "--set", "engine=loop")[0] == 0
    code, _, error = fedsum("run", "one.toml", "--folder", "here", "--set", "sweep.seed=[2]", "--set", "eta_g=0.5")
    assert (code, "eta_g = 0.5: the sweep in here has None" in error) == (2, True)
    assert tomllib.loads((tmp_path / "here/sweep.toml").read_text())["sweep"]["seed"] == [0, 1]


def test_runs_that_were_not_begun_are_told(tmp_path, fedsum, monkeypatch):
    written(tmp_path / "one.toml", SMALL + "[sweep]\nseed = [0, 1]\n")
    assert fedsum("run", "one.toml", "--folder", "here")[0] == 0
    shutil.rmtree(tmp_path / "here/seed=1")
    monkeypatch.setattr(RunSpec, "parse", None)  # listing must not make runs, which might download data
    code, out, _ = fedsum("show", "here")
    assert (code, "1 of 2 runs finished" in out, "new" in out) == (0, True, True)
    assert json.loads(fedsum("show", "here", "--json")[1])["runs"]["seed=1"]["state"] == "new"
    assert '"missing":["seed=1"]' in render(read_runs(tmp_path / "here"), "", not_begun(tmp_path / "here"))
    assert fedsum("report", "here")[0] == 0
    assert '"missing":["seed=1"]' in next(tmp_path.rglob("*.html")).read_text()


def test_best_is_a_mean_over_seeds_and_the_last_rounds(tmp_path):
    table = tomllib.loads(SMALL) | {"sweep": {"eta_g": [1.0, 2.0, 3.0], "seed": [0, 1]}}
    runs = expand(table, tmp_path)
    accuracies = {"eta_g=1.0": (0.1, 0.8, 0.8), "eta_g=2.0": (0.9, 0.5, 0.9), "eta_g=3.0": (0.9, 0.9, 0.9)}
    for run in runs:
        lines = zip((113, 114, 150), accuracies[run.name.partition(",")[0]], strict=True)
        worse = run.chosen["seed"] * 0.02
        rows = [f"{t},{value - worse},{t + 1 - value}" for t, value in lines]
        run.folder.mkdir()
        written(run.folder / "metrics.csv", "\n".join(["round,test_accuracy,train_loss", *rows]) + "\n")
    stands = {run.name: replace(Run.read(run.folder), state="finished") for run in runs}
    assert best(runs, stands, "test_accuracy").name == "eta_g=3.0"
    stands["eta_g=3.0,seed=1"] = replace(stands["eta_g=3.0,seed=1"], state="diverged")
    # Round 113 is not in the last quarter, and round 150 alone would choose 2.0.
    found = best(runs, stands, "test_accuracy")
    assert (found.name, found.settings, found.table["eta_g"]) == ("eta_g=1.0", {"eta_g": 1.0}, 1.0)
    assert found.value == pytest.approx(0.79)
    assert best(runs, stands, "train_loss").settings == {"eta_g": 1.0}
    with pytest.raises(InputError, match="no run has this metric; known: round, test_accuracy, train_loss"):
        best(runs, stands, "error")
    nowhere = {
        name: replace(run, rows=[row | {"train_loss": math.nan} for row in run.rows]) for name, run in stands.items()
    }
    with pytest.raises(InputError, match="no setting has finished all its runs with a value of this metric"):
        best(runs, nowhere, "train_loss")


# The commands.


def test_run_show_and_resume(tmp_path, fedsum):
    written(tmp_path / "one.toml", SMALL)
    code, out, _ = fedsum("run", "one.toml", "--set", "rounds=20", "--tensorboard")
    assert code == 0
    assert "20 of 20" in out
    assert list((tmp_path / "runs/one/tensorboard").iterdir())
    code, out, _ = fedsum("show", "runs/one")
    assert (code, "finished" in out, "quadratic" in out) == (0, True, True)
    code, out, _ = fedsum("show", "runs/one", "--json")
    assert '"state": "finished"' in out
    code, _, error = fedsum("run", "one.toml", "--set", "rounds=30")
    assert (code, "rounds = 30: the run in runs/one has 20" in error) == (2, True)
    code, out, _ = fedsum("resume", "runs/one")
    assert (code, "20 of 20" in out) == (0, True)
    code, _, error = fedsum("resume", "runs")
    assert (code, "config.toml or a sweep.toml" in error) == (2, True)
    code, _, error = fedsum("show", "nowhere")
    assert (code, "a folder with runs in it" in error) == (2, True)
    code, out, _ = fedsum("settings")
    assert (code, "global learning rate" in out) == (0, True)


def test_a_run_that_diverges_says_so_once(tmp_path, fedsum):
    written(tmp_path / "one.toml", SMALL)
    code, out, error = fedsum("run", "one.toml", "--set", "eta_l=1e30")
    assert (code, "diverged" in out, error) == (0, True, "")


def test_ctrl_c_on_the_command_line(tmp_path):
    file = written(tmp_path / "one.toml", SMALL.replace("rounds = 150", "rounds = 100000"))
    process = subprocess.Popen(command("run", file, "--folder", tmp_path / "run"), stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "run/checkpoint.safetensors").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"resume with: fedsum resume {tmp_path / 'run'}" in error
    assert Run.read(tmp_path / "run").state == "stopped"


def test_a_stopped_run_of_a_sweep_names_the_sweep_to_resume(tmp_path):
    (tmp_path / "sweep.toml").touch()
    with closing(RunFolder(tmp_path / "seed=0")) as one, closing(RunFolder(tmp_path / "alone/run")) as alone:
        assert one.way_to_resume == f"fedsum resume {tmp_path}"
        assert alone.way_to_resume == f"fedsum resume {tmp_path / 'alone/run'}"


def test_the_display_of_a_sweep(undisturbed, monkeypatch):
    terminal = Console(file=io.StringIO(), width=150, force_terminal=True, _environ={"TERM": "xterm"})
    monkeypatch.setattr(progress, "err", terminal)
    monkeypatch.setitem(progress.PROGRESS_OPTIONS, "disable", False)
    runs = expand(tomllib.loads(SWEEP), undisturbed)
    stands = {run.name: Run.read(run.folder) for run in runs}
    first = runs[0].name
    with progress.SweepProgress(runs) as shown:
        shown(stands | {first: Run(undisturbed, "running", 30, rows=[{"round": 30, "train_loss": 0.5}])})
        shown._progress.refresh()
    text = terminal.file.getvalue()
    assert "23 of 24 runs" in text
    assert f"{first}" in text
    assert "30/150" in text
    assert "train loss 0.5" in text


# Tables and objects.


MINE = """
import fedsum
from dataclasses import dataclass

@dataclass(frozen=True)
class Mine(fedsum.FedAvg):
    strength: float = 1.0

@dataclass(frozen=True)
class Odd:
    n: int
    first: int = 0

    def active(self, seed, round):
        import numpy as np
        return np.arange(self.first, self.n, 2)

    def describe(self, rounds=None):
        return fedsum.Pattern(N=self.n)

def task(d=3):
    return fedsum.tasks.Quadratic.random(6, d, seed=5)

nothing = 7
"""


def test_your_own_in_a_file(tmp_path, fedsum, monkeypatch):
    mine = written(tmp_path / "mine.py", MINE)
    text = """
    rounds = 4
    local_steps = 1
    eta_l = 0.1
    task = {name = "mine.py:task", d = 5}
    algorithm = {name = "mine.py:Mine", strength = 2.0}
    schedule = {name = "mine.py:Odd", first = 1}
    """
    written(tmp_path / "run.toml", text)
    assert fedsum("run", "run.toml")[0] == 0
    used = tomllib.loads((tmp_path / "runs/run/config.toml").read_text())
    assert used["task"] == {"name": f"{mine}:task", "d": 5}
    assert used["algorithm"] == {"name": f"{mine}:Mine", "strength": 2.0}
    assert used["schedule"] == {"name": f"{mine}:Odd", "n": 6, "first": 1}
    assert fedsum("resume", "runs/run", "--trust")[0] == 0
    monkeypatch.chdir("/")  # the files are found from anywhere
    assert fedsum("resume", str(tmp_path / "runs/run"), "--trust")[0] == 0
    monkeypatch.chdir(tmp_path)
    for wrong in ("nothing", "missing"):
        code, _, error = fedsum("run", "run.toml", "--set", f"algorithm={mine}:{wrong}", "--folder", "other")
        assert code == 2
        assert error.startswith("error: algorithm = ")


def test_tables_and_objects_are_the_same(tmp_path):
    import fedsum as fs

    trace = written(tmp_path / "trace.csv", "round,client\n0,0\n1,1\n")
    schedules = [
        fs.Uniform(9, 2),
        fs.Independent(9, 0.3),
        fs.Independent(9, [0.1 * (i + 1) for i in range(9)]),
        fs.Independent(9, lambda t: 0.1 * (t + 1)),
        fs.Sine(9, 2),
        fs.Cyclic(9, 4),
        fs.Reshuffled(9, 4),
        fs.Biased(9, group=2),
        fs.Markov(9, 0.5, 0.6),
        fs.Periodic(9, groups=2, dwell=3, size=2),
        fs.Spaced(9, 2, 3),
        fs.Diurnal(9, peak=0.5, trough=0.0, period=7.5, zones=2),
        fs.Explicit(9, [[0, 1], [], [8]], repeat=True),
        fs.Sampled(fs.Markov(9, 0.5, 0.6), 3, "oldest", oversample=1.5),
        fs.Sampled(fs.Availability.read(trace, clients=9, repeat=True), 1),
        fs.Availability.read(trace, clients=9, repeat=True, rounds=4),
        fs.Trace.read(trace, clients=9, repeat=True),
    ]
    for schedule in schedules:
        spec = ScheduleSpec.of(schedule, 5, 0)
        parsed = ScheduleSpec.parse(spec.dump(), 9)
        again = parsed.make(9)
        assert (parsed, ScheduleSpec.of(again, 5, 0)) == (spec, spec)
        assert all((again.active(1, t) == schedule.active(1, t)).all() for t in range(5))
    algorithms = [cls() for cls in fs.algorithms.ALGORITHMS.values()]
    algorithms += [fs.KnownFedAvg(p=[0.5] * 9), fs.ServerOpt(fs.FedAU(cutoff=3), fs.SGD(2.0, momentum=0.5))]
    algorithms += [fs.Compressed(fs.SCAFFOLD(), fs.RandomK(0.1, unbiased=True), alpha=0.1)]
    for algorithm in algorithms:
        assert parse_algorithm(dump_algorithm(algorithm, 5)) == algorithm
    for table in ({"name": "digits", "clients": 9}, {"name": "quadratic", "n": 3, "d": 2}):
        assert TaskSpec.of(TaskSpec.parse(table).make()) == TaskSpec.parse(table)
    trace.write_text("round,client\n0,0\n1,2\n")
    with pytest.raises(InputError, match="the trace has changed"):
        ScheduleSpec.parse(ScheduleSpec.of(schedules[-1], 5, 0).dump(), 9)
    with pytest.raises(InputError, match="the trace has changed"):
        ScheduleSpec.parse(ScheduleSpec.of(schedules[-3], 5, 0).dump(), 9)
    long = ScheduleSpec.of(fs.Explicit(9, [[0, 1, 2]] * 5000), 5, 0).dump()
    assert set(long["sets"]) == {"sha256"}
    with pytest.raises(InputError, match="recorded by a digest only"):
        ScheduleSpec.parse(long, 9)


# Regressions.


def test_a_worker_that_cannot_be_started_fails_its_runs_and_does_not_hang(tmp_path, monkeypatch):
    def no_more(self):
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(pools._SPAWN.Process, "start", no_more)
    runs = expand(tomllib.loads(SMALL) | {"sweep": {"seed": [0]}}, tmp_path)
    (stand,) = run_all(runs, LocalPool(1)).values()
    assert stand.state == "failed"
    assert "its worker died 3 times" in stand.reason
    assert "Resource temporarily unavailable" in stand.reason


def test_a_search_averages_over_seeds_of_runs_and_of_tasks(tmp_path):
    """To select a task's seed would be to select the easier partition."""
    sweep = {"seed": [0, 1], "task.seed": [0, 1]}
    runs = expand(tomllib.loads(SMALL) | {"sweep": sweep}, tmp_path)
    assert [run.name for run in runs] == [f"seed={a},task.seed={b}" for a in (0, 1) for b in (0, 1)]
    stands = {}
    for run in runs:
        error = {0: 1.0, 1: 5.0}[run.chosen["task.seed"]] + run.chosen["seed"]
        stands[run.name] = Run(run.folder, "finished", 150, rows=[{"round": 150, "error": error}])
    found = best(runs, stands, "error")
    assert (found.name, found.settings, found.value) == ("", {}, (1 + 2 + 5 + 6) / 4)


def test_a_search_averages_over_the_seeds_of_tasks_with_long_labels(tmp_path):
    """Labels of more than 80 characters end in a digest, also of the seed."""
    own = {"name": "digits", "partition": "class_dirichlet", "shards_per_client": 2, "init": "kaiming", "model": "mlp"}
    tasks = [own | {"alpha": alpha, "clients": 10, "seed": seed} for alpha in (0.1, 0.2) for seed in (0, 1)]
    runs = expand(tomllib.loads(SMALL) | {"sweep": {"task": tasks, "eta_l": [0.1, 0.2]}}, tmp_path)
    assert all(len(run.parts["task"]) == 80 for run in runs)
    # For alpha = 0.1 the first rate is better in the mean, with seed 1 the second.
    errors = {(0.1, 0): [1.0, 5.0], (0.1, 1): [3.0, 2.0], (0.2, 0): [2.0, 1.0], (0.2, 1): [2.0, 1.0]}
    stands = {}
    for run in runs:
        task, rate = run.chosen["task"], run.chosen["eta_l"]
        error = errors[task["alpha"], task["seed"]][rate == 0.2]
        stands[run.name] = Run(run.folder, "finished", 150, rows=[{"round": 150, "error": error}])
    found = best_per_combination(runs, stands, "error")
    assert [(b.settings["eta_l"], b.value) for b in found.values()] == [(0.1, 2.0), (0.2, 1.0)]
    assert len({combination.problem for combination in found}) == 2


def test_letter_case_does_not_make_one_algorithm_two_runs(tmp_path):
    table = tomllib.loads(SMALL)
    names = [
        [run.name for run in expand(table | {"sweep": {"algorithm": [name], "schedule.name": [how]}}, tmp_path)]
        for name, how in (("fedsumcr", "uniform"), ("FedSUM-CR", "Uniform"), ("FEDSUMCR", "UNIFORM"))
    ]
    assert names == [["FedSUM-CR,Uniform"]] * 3
    with pytest.raises(InputError, match="the same values twice"):
        expand(table | {"sweep": {"algorithm": ["fedavg", "FedAvg"]}}, tmp_path)


@pytest.mark.parametrize("text", ["", "rounds = 3\n", "rounds = "])
def test_show_with_a_damaged_config(text, fedsum, tmp_path):
    written(tmp_path / "one.toml", SMALL + "[sweep]\nseed = [0, 1]\n")
    assert fedsum("run", "one.toml", "--folder", "here")[0] == 0
    written(tmp_path / "here/seed=1/config.toml", text)
    for folder in ("here", "here/seed=1"):
        code, out, error = fedsum("show", folder)
        assert (code, "damaged" in out, "config.toml: " in " ".join(out.split()), error) == (0, True, True, "")
    assert json.loads(fedsum("show", "here", "--json")[1])["runs"]["seed=1"]["state"] == "damaged"
    code, _, error = fedsum("report", "here")
    assert (code, "seed=1': config.toml: " in error) == (2, True)
    code, _, error = fedsum("resume", "here/seed=1")
    assert (code, error.startswith("error: ")) == (2, True)


def test_job_j_is_on_gpu_j(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    for job in range(5):
        pools.use_gpu(job)
    assert chosen == [0, 1, 2, 0, 1]


def test_the_processes_of_a_pool_are_numbered(tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr(pools._SPAWN, "Process", lambda target, args, daemon: served.append(args[1]) or 1 / 0)
    for number in range(3):
        with pytest.raises(ZeroDivisionError):
            pools._Worker(number)
    assert served == [0, 1, 2]
    drivers = []
    monkeypatch.setattr(LocalPool, "_feed_worker", lambda self, number: drivers.append(number))
    with LocalPool(3):
        pass
    assert sorted(drivers) == [0, 1, 2]


def test_the_tensorboard_of_the_documentation(tmp_path):
    import fedsum

    task = fedsum.tasks.Quadratic.random(4, 2)
    watching = fedsum.TensorBoard(tmp_path)
    schedule = fedsum.Uniform(4, 2)
    fedsum.simulate(task, fedsum.FedSUM(), schedule, rounds=3, local_steps=1, eta_l=0.1, observers=[watching])
    assert list((tmp_path / "tensorboard").iterdir())


def test_a_grid_search_selects_for_each_algorithm(tmp_path, fedsum):
    """A comparison of algorithms is fair only if each one has its own best rate."""
    sweep = """[sweep]
    "algorithm, eta_l" = [
        ["FedAvg", 0.002], ["FedAvg", 0.02], ["FedSUM-CR", 0.02], ["FedSUM-CR", 0.002], ["SCAFFOLD", 1e6]
    ]
    """
    written(tmp_path / "grid.toml", SMALL.replace("rounds = 150", "rounds = 20") + sweep)
    code, out, err = fedsum("grid", "grid.toml", "--by", "error", "--folder", "found")
    assert code == 0, err
    assert "best of SCAFFOLD: none of its settings finished all runs" in err
    errors = {run.name: Run.read(run).last["error"] for run in find_runs(tmp_path / "found")}
    for label in ("FedAvg", "FedSUM-CR"):
        of_algorithm = {name: error for name, error in errors.items() if name.startswith(f"{label},")}
        winner = min(of_algorithm, key=of_algorithm.get)
        assert f"│ {label}" in out
        assert winner.split(",")[1] in out.split("best settings")[1]
        settings = tomllib.loads((tmp_path / f"found/best-{label}.toml").read_text())
        assert settings == {"algorithm": label, "eta_l": float(winner.split("=")[1])}
    assert {path.name for path in (tmp_path / "found").glob("best*")} == {"best-FedAvg.toml", "best-FedSUM-CR.toml"}
    code, out, _ = fedsum("grid", "grid.toml", "--by", "error", "--folder", "found", "--overall")
    assert (code, f"best: {min(errors, key=errors.get)}" in out) == (0, True)
    assert (tmp_path / "found/best.toml").exists()


def test_a_grid_search_does_not_select_the_easier_pattern_or_task(tmp_path, fedsum):
    sweep = """[sweep]
    algorithm = ["FedAvg", "FedSUM"]
    schedule = [{name = "uniform", size = 8}, {name = "cyclic", size = 1}]
    task = [{name = "quadratic", n = 8, d = 3, seed = 0}, {name = "quadratic", n = 8, d = 3, seed = 1}]
    eta_l = [0.002, 0.05]
    seed = [0, 1]
    """
    written(tmp_path / "grid.toml", SMALL.replace("rounds = 150", "rounds = 12") + sweep)
    code, out, err = fedsum("grid", "grid.toml", "--by", "error", "--folder", "found", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert list(found["best"]) == ["FedAvg,Uniform", "FedAvg,Cyclic", "FedSUM,Uniform", "FedSUM,Cyclic"]
    for name, best_of in found["best"].items():
        algorithm, schedule = name.split(",")
        settings = tomllib.loads((tmp_path / f"found/best-{algorithm}-{schedule}.toml").read_text())
        assert settings["schedule"]["name"] == schedule.lower()
        assert settings["task"] == {"name": "quadratic", "n": 8, "d": 3}  # the mean is over its seeds
        runs = [(key, run) for key, run in found["runs"].items() if key.startswith(f"{name},")]
        by_rate = {
            rate: [run["last"]["error"] for key, run in runs if f"eta_l={rate}" in key] for rate in (0.002, 0.05)
        }
        assert {rate: len(values) for rate, values in by_rate.items()} == {0.002: 4, 0.05: 4}
        assert settings["eta_l"] == min(by_rate, key=lambda rate: sum(by_rate[rate]))
        assert best_of["run"] == f"{name},quadratic-n=8-d=3,eta_l={settings['eta_l']}"
    assert len(list((tmp_path / "found").glob("best*"))) == 4
    code, out, _ = fedsum("grid", "grid.toml", "--by", "error", "--folder", "found")
    rows = [line for line in out.split("best settings")[1].splitlines() if line.startswith("│")]
    assert (code, len(rows), "Cyclic" in rows[1]) == (0, 4, True)
    code, out, _ = fedsum("grid", "grid.toml", "--by", "error", "--folder", "found", "--overall", "--json")
    assert (code, {len(name.split(",")) for name in json.loads(out)["best"]}) == (0, {2})
    assert {"best-Uniform.toml", "best-Cyclic.toml"} < {path.name for path in (tmp_path / "found").glob("best*")}


def test_grid_and_report_mean_the_same_final_value(tmp_path, fedsum):
    """The last 50 rounds, or the last quarter of a shorter run; never the untrained model."""
    for rounds, window in ((3, 1), (30, 7), (150, 37), (400, 50)):
        text = SMALL.replace("rounds = 150", f"rounds = {rounds}") + "[sweep]\neta_g = [0.5, 1.0]\n"
        written(tmp_path / "one.toml", text)
        table = read_settings(tmp_path / "one.toml")
        folder = tmp_path / f"runs{rounds}"
        assert fedsum("run", "one.toml", "--folder", folder)[0] == 0
        planned = expand(table, folder)
        found = best(planned, {run.name: Run.read(run.folder) for run in planned}, "train_loss")
        row = final_table(read_runs(folder)).set_index("setting").loc[found.name.replace("1.0", "1")]
        assert row["train_loss_last"] == pytest.approx(found.value, rel=1e-12)
        by_round = Run.read(folder / found.name).metrics.set_index("round")["train_loss"]
        counted = by_round[by_round.index > rounds - window]
        assert found.value == pytest.approx(counted.mean(), rel=1e-12)


def test_a_worker_that_fails_in_any_way_does_not_hang(tmp_path, monkeypatch):
    def bootstrapping(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(pools._SPAWN.Process, "start", bootstrapping)
    runs = expand(tomllib.loads(SMALL) | {"sweep": {"seed": [0]}}, tmp_path)
    (stand,) = run_all(runs, LocalPool(1)).values()
    assert (stand.state, "can't start new thread" in stand.reason) == ("failed", True)


def test_a_sweep_in_another_letter_case_is_the_same_sweep(tmp_path, fedsum):
    text = SMALL.replace("rounds = 150", "rounds = 5")
    written(tmp_path / "one.toml", text + "[sweep]\nseed = [0]\n")
    assert fedsum("run", "one.toml", "--folder", "here")[0] == 0
    shouted = text.replace('"FedSUM"', '"fedsum"').replace('"uniform"', '"UNIFORM"')
    written(tmp_path / "two.toml", shouted + "[sweep]\nseed = [0, 1]\n")
    assert fedsum("run", "two.toml", "--folder", "here")[0] == 0


def test_a_metrics_file_that_csv_cannot_read_is_a_problem_and_no_traceback(tmp_path, fedsum):
    written(tmp_path / "one.toml", SMALL.replace("rounds = 150", "rounds = 5"))
    assert fedsum("run", "one.toml")[0] == 0
    for text in ("round,error\n0," + "1" * 200_000 + "\n5,1.0\n", "round,error\ninf,1.0\n5,1.0\n"):
        written(tmp_path / "runs/one/metrics.csv", text)
        assert "metrics.csv" in Run.read(tmp_path / "runs/one").problem
        assert fedsum("show", "runs/one")[0] == 0


def test_long_values_that_begin_alike_have_their_own_names(tmp_path):
    chances = [[0.5] * 30, [0.5] * 29 + [0.9]]
    rows = [{"name": "Independent", "p": p} for p in chances]
    base = {"rounds": 2, "local_steps": 1, "eta_l": 0.1, "task": {"name": "quadratic", "n": 30, "d": 2}}
    names = [
        [run.name for run in expand({**base, "algorithm": "FedSUM", "sweep": {"schedule": values}}, tmp_path)]
        for values in (rows, rows[::-1])
    ]
    assert len(set(names[0])) == 2
    assert names[0] == names[1][::-1]  # a function of the values
    assert all(name.startswith("Independent-p=-0.5-0.5") and len(name) <= 80 for name in names[0])
    with pytest.raises(InputError, match="the same values twice"):
        expand({**base, "algorithm": "FedSUM", "sweep": {"schedule": [rows[0], rows[1], rows[0]]}}, tmp_path)
