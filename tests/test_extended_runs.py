"""A finished run that goes on to more rounds, and a run that stops early."""

import json
import os
import re
import signal
import sys

import pytest
import torch
from test_runs import assert_same, broken_off, go, stop_after, timeless

import fedsum
from fedsum import InputError, PerRound, Run, StopWhen
from fedsum.runs import RunFolder


def decay(t):
    return 0.05 / (t + 1)


@pytest.mark.parametrize(
    ("changed", "rounds"),
    [
        ({}, (30, 41)),  # round 30 is evaluated because it is the last one; round 41 has the same reason
        ({"eval_last": 5, "algorithm": fedsum.MIFA()}, (26, 28, 40)),
        ({"eta_l": decay, "schedule": fedsum.Independent(9, lambda t: 0.5 / (t + 1))}, (10, 20)),
        ({"eta_l": fedsum.InverseSqrt(0.05)}, (5, 31)),
    ],
)
def test_an_extended_run_ends_as_one_that_was_longer_from_the_start(changed, rounds, tmp_path):
    for T in rounds:
        history = go(tmp_path / "extended", extend=True, rounds=T, **changed)
    assert_same(history, go(tmp_path / "whole", rounds=rounds[-1], **changed))
    extended, whole = (Run.read(tmp_path / name) for name in ("extended", "whole"))
    assert timeless(extended.rows) == timeless(whole.rows)
    assert (extended.state, extended.round, extended.config["rounds"]) == ("finished", rounds[-1], rounds[-1])
    models = [(run.folder / "model.safetensors").read_bytes() for run in (extended, whole)]
    assert models[0] == models[1]


def test_an_extension_that_is_interrupted_is_resumed(tmp_path):
    go(tmp_path / "extended", rounds=20)
    with pytest.raises(ZeroDivisionError):  # before the first checkpoint of the extension
        go(tmp_path / "extended", extend=True, rounds=41, on_round=stop_after(22))
    broken_off(tmp_path / "extended", 33, rounds=41)
    assert_same(go(tmp_path / "extended", rounds=41), go(rounds=41))


def test_a_run_that_ends_before_its_checkpoint_is_loaded_keeps_its_status(tmp_path, monkeypatch):
    go(tmp_path, rounds=20)
    seen = []

    def failing(*arguments):
        seen.append((Run.read(tmp_path).state, Run.read(tmp_path).round))
        raise MemoryError("no memory")

    monkeypatch.setattr(sys.modules["fedsum.runs.execute"], "train", failing)
    with pytest.raises(MemoryError):
        go(tmp_path, rounds=20)
    run = Run.read(tmp_path)
    assert (seen.pop(), run.state, run.round) == (("finished", 20), "finished", 20)
    with pytest.raises(MemoryError):  # a process killed here must not leave a finished run of 41 rounds
        go(tmp_path, rounds=41, extend=True)
    run = Run.read(tmp_path)
    assert (seen.pop(), run.state, run.round) == (("running", 20), "failed", 20)
    monkeypatch.undo()
    assert_same(go(tmp_path, rounds=41), go(rounds=41))


@pytest.mark.parametrize("killed_in", ["claim", "set_status"])
def test_an_extension_that_is_killed_at_its_start_is_not_taken_for_finished(killed_in, tmp_path, monkeypatch):
    go(tmp_path, rounds=20)

    def killed(*arguments, **options):
        raise SystemExit

    monkeypatch.setattr(RunFolder, killed_in, killed)
    with pytest.raises(SystemExit):
        go(tmp_path, rounds=41, extend=True)
    run = Run.read(tmp_path)
    assert (run.config["rounds"], run.state) in [(20, "finished"), (20, "interrupted"), (41, "interrupted")]
    monkeypatch.undo()
    assert_same(go(tmp_path, rounds=41, extend=True), go(rounds=41))


@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        ({}, {"rounds": 20, "extend": True}, "rounds = 20: the run in .* has 30 rounds; it can only become longer"),
        ({}, {"rounds": 40}, "rounds = 40: the run in .* has 30; extend it with: fedsum resume .* --set rounds=40"),
        ({}, {"rounds": 40, "extend": True, "eta_g": 0.5}, "eta_g = 0.5: the run in .* has 1.0"),
        (
            {"eta_l": lambda t: 0.05 * (1 - t / 30)},
            {"eta_l": lambda t: 0.05 * (1 - t / 60), "rounds": 60, "extend": True},
            r"eta_l\(1\) = ",
        ),
        (
            {"eta_l": PerRound([0.05] * 30)},
            {"eta_l": PerRound([0.05] * 30), "rounds": 40, "extend": True},
            "eta_l = '30 values': one value for each of 40 rounds",
        ),
        (
            {"schedule": fedsum.Independent(9, PerRound([0.5] * 30))},
            {"schedule": fedsum.Independent(9, PerRound([0.5] * 30)), "rounds": 40, "extend": True},
            "schedule.p = '30 values': one value for each of 40 rounds",
        ),
        (
            {"schedule": fedsum.Explicit(9, [[1]] * 30)},
            {"schedule": fedsum.Explicit(9, [[1]] * 30), "rounds": 31, "extend": True},
            "rounds = 31: the schedule has 30 rounds",
        ),
    ],
)
def test_an_extension_that_is_refused_names_its_field(first, then, message, tmp_path):
    go(tmp_path, **first)
    with pytest.raises(InputError, match=message):
        go(tmp_path, **(first | then))
    assert Run.read(tmp_path).config["rounds"] == 30
    go(tmp_path, on_round=stop_after(1), **first)  # still the finished run


def test_an_extension_needs_a_checkpoint(tmp_path):
    go(tmp_path)
    (tmp_path / "checkpoint.safetensors").unlink()
    with pytest.raises(InputError, match=r"finished and has no checkpoint.*--keep"):
        go(tmp_path, rounds=40, extend=True)
    assert Run.read(tmp_path).config["rounds"] == 30


SMALL = """
rounds = 20
local_steps = 2
eta_l = 0.05
task = {name = "quadratic", n = 6, d = 3, noise = 0.1}
algorithm = "FedSUM"
schedule = {name = "Uniform", size = 2}
"""


def test_the_command_line_extends_runs_and_sweeps(tmp_path, fedsum):
    (tmp_path / "one.toml").write_text(SMALL)
    assert fedsum("run", "one.toml")[0] == 0
    code, out, _ = fedsum("resume", "runs/one", "--set", "rounds=33", "--json")
    assert (code, json.loads(out)["runs"]["."]["round"]) == (0, 33)
    fedsum("run", "one.toml", "--set", "rounds=33", "--folder", "runs/whole")
    assert timeless(Run.read(tmp_path / "runs/one").rows) == timeless(Run.read(tmp_path / "runs/whole").rows)
    code, _, error = fedsum("run", "one.toml", "--set", "rounds=50")
    assert (code, "extend it with: fedsum resume runs/one --set rounds=50" in error) == (2, True)

    (tmp_path / "sweep.toml").write_text(SMALL + "[sweep]\nseed = [0, 1]\n")
    for keep in ((), ("--keep",)):
        folder = f"runs/kept{len(keep)}"
        assert fedsum("run", "sweep.toml", "--folder", folder, *keep)[0] == 0
        code, out, error = fedsum("resume", folder, "--set", "rounds=25", "--json")
        if keep:
            assert [run["round"] for run in json.loads(out)["runs"].values()] == [25, 25]
        else:
            assert (code, "has no checkpoint" in error) == (2, True)
            assert fedsum("resume", folder)[0] == 0  # its settings are unchanged


@pytest.mark.parametrize(
    ("line", "edited", "message"),
    [
        ("eta_g = 1.0", "eta_g = 0.5", "eta_g = 0.5: the run in .* has 1.0"),
        ("d = 3", "d = 4", "task.d = 4: the run in .* has 3"),
        ("rounds = 20", "rounds = 10", "rounds = 10: the run in .* has 20 rounds; it can only become longer"),
    ],
)
def test_an_edited_config_is_refused(line, edited, message, tmp_path, fedsum):
    (tmp_path / "one.toml").write_text(SMALL)
    fedsum("run", "one.toml")
    config = tmp_path / "runs/one/config.toml"
    original = config.read_text()
    assert original.count(line) == 1
    config.write_text(original.replace(line, edited))
    code, _, error = fedsum("resume", "runs/one")
    assert (code, bool(re.search(message, error))) == (2, True)
    config.write_text(original)
    assert fedsum("resume", "runs/one")[0] == 0


# Early stopping.


def test_a_rule_is_read_from_the_evaluations():
    rows = [
        {"round": t, "test_accuracy": value, "train_loss": -value} for t, value in enumerate((0.9, 0.1, 0.5, 0.4, 0.45))
    ]
    stops = lambda **rule: [bool(StopWhen(**rule).reason(rows[:end])) for end in range(1, 6)]  # noqa: E731
    assert stops(metric="test_accuracy", above=0.45) == [False, False, True, False, False]  # round 0 does not count
    assert stops(metric="train_loss", below=-0.42) == [False, False, True, False, True]
    assert stops(metric="test_accuracy", patience=2) == stops(metric="train_loss", patience=2) == [False] * 4 + [True]


def test_patience_counts_from_the_best_number():
    """A metric can be NaN at first, such as an AUC of one class."""
    nan = float("nan")
    rows = [{"round": t, "test_loss": value} for t, value in enumerate((0.9, nan, nan, 0.5, 0.4, 0.3, 0.4, 0.5))]
    rule = StopWhen("test_loss", patience=2)
    assert [bool(rule.reason(rows[:end])) for end in range(1, 9)] == [False] * 7 + [True]
    always = [{"round": t, "test_loss": nan} for t in range(5)]
    assert "test_loss = nan has not improved since round 1" in rule.reason(always)


def test_a_run_stops_early_is_marked_and_resumes_alike(tmp_path, fedsum):
    whole = go(rounds=30)
    target = whole.rows[3]["communication"] - 0.5  # grows from round to round
    rule = StopWhen("communication", above=target)
    history = go(tmp_path / "stopped", stop=rule)
    assert (history.stopped, history.rows[-1]["round"], history.diverged) == (12, 12, None)
    assert timeless(history.rows) == timeless(whole.rows[:4])
    run = Run.read(tmp_path / "stopped")
    assert (run.state, run.round, run.config["stop"]) == ("finished", 12, {"metric": "communication", "above": target})
    assert run.reason.startswith("stopped early after round 12: communication = ")
    assert_same(go(tmp_path / "stopped", stop=rule, on_round=stop_after(1)), history)  # it is over
    assert_same(go(tmp_path / "stopped", stop=rule, rounds=50, extend=True), history)  # a longer run stops there too
    broken_off(tmp_path / "broken", 9, stop=rule)
    assert_same(go(tmp_path / "broken", stop=rule), history)
    code, out, _ = fedsum("show", "stopped")
    assert (code, "stopped early after round 12" in out, "12 of 50" in out) == (0, True, True)


def test_an_extension_past_a_stop_of_the_last_evaluations(tmp_path):
    """`eval_last` evaluates more rounds; a longer run does not see the value at which the short run stopped."""
    whole = go(rounds=60, eval_every=50)
    losses = {row["round"]: row["train_loss"] for row in go(rounds=30, eval_every=50, eval_last=5).rows}
    rule = StopWhen("train_loss", below=losses[27] + 1e-12)
    short = go(tmp_path, rounds=30, eval_every=50, eval_last=5, stop=StopWhen("train_loss", below=1e9))
    assert short.stopped == 26
    extended = go(tmp_path / "two", rounds=30, eval_every=50, eval_last=5, stop=rule)
    assert extended.stopped in (26, 27)
    assert torch.equal(
        go(tmp_path / "two", rounds=60, eval_every=50, eval_last=5, stop=rule, extend=True).server["x"],
        go(rounds=60, eval_every=50, eval_last=5, stop=rule).server["x"],
    )
    assert len(whole.rows) == 3


@pytest.mark.parametrize(
    ("stop", "message"),
    [
        ("test_accuracy", "stop = 'test_accuracy': a table such as"),
        ({"metric": "train_loss"}, "one of above, below and patience"),
        ({"metric": "train_loss", "abov": 1}, "stop.abov = 1: no such field; did you mean 'above'"),
        ({"metric": "train_loss", "patience": 0}, "stop.patience = 0"),
        ({"metric": "test_acc", "above": 1}, "stop.metric = 'test_acc': .*known: .*train_loss"),
    ],
)
def test_rules_that_are_refused(stop, message, tmp_path):
    table = {"rounds": 3, "local_steps": 1, "eta_l": 0.1, "algorithm": "FedSUM", "schedule": {"name": "Uniform"}}
    table |= {"task": {"name": "quadratic", "n": 3, "d": 2}, "schedule": {"name": "Uniform", "size": 1}, "stop": stop}
    with pytest.raises(InputError, match=message):
        fedsum.runs.execute(fedsum.RunSpec.parse(table), tmp_path)
    with pytest.raises(InputError, match="stop = 3"):
        go(stop=3)


# Found before the first round.


def test_a_trace_shorter_than_the_run_is_refused_before_the_first_round(tmp_path, fedsum):
    (tmp_path / "seen.csv").write_text("round,client\n0,0\n1,1\n2,5\n")
    schedule = '{name = "Trace", path = "seen.csv"}'
    (tmp_path / "one.toml").write_text(
        SMALL.replace('{name = "Uniform", size = 2}', schedule).replace("n = 6", "n = 3")
    )
    code, _, error = fedsum("run", "one.toml")
    assert (code, "rounds = 20: the schedule has 3 rounds" in error) == (2, True)
    code, _, error = fedsum("run", "one.toml", "--set", "sweep.seed=[0,1]")
    assert (code, "rounds = 20: the schedule has 3 rounds" in error) == (2, True)
    assert not (tmp_path / "runs").exists()
    assert fedsum("run", "one.toml", "--set", "schedule.repeat=true")[0] == 0


@pytest.mark.parametrize(
    ("included", "file", "key"),
    [
        ("eta_l = [0.1, 0.2]", '"eta_l, eta_g" = [[0.1, 1.0]]', "eta_l"),
        ('"task.n" = [3, 4]', 'task = ["quadratic"]', "task"),
        ('"eta_g, eta_l" = [[1.0, 0.1]]', '"local_steps, eta_l" = [[1, 0.1]]', "eta_l"),
    ],
)
def test_a_setting_swept_twice_is_refused(included, file, key, tmp_path, fedsum):
    (tmp_path / "base.toml").write_text(SMALL + f"[sweep]\n{included}\n")
    (tmp_path / "sweep.toml").write_text(f'include = "base.toml"\n[sweep]\n{file}\n')
    code, _, error = fedsum("run", "sweep.toml")
    assert (code, f"error: sweep.{key} = '{key}': is swept twice" in error) == (2, True)


def test_a_file_may_import_its_neighbours(tmp_path, fedsum):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/neighbour_of_a_task.py").write_text("from fedsum.tasks import Quadratic\n")
    text = "def task(n):\n    from neighbour_of_a_task import Quadratic\n    return Quadratic.random(n, 3)\n"
    (tmp_path / "mine/own.py").write_text(text)
    own = SMALL.replace('name = "quadratic", n = 6, d = 3, noise = 0.1', 'name = "mine/own.py:task", n = 6')
    (tmp_path / "one.toml").write_text(own)
    assert fedsum("run", "one.toml")[0] == 0
    code, out, _ = fedsum("run", "one.toml", "--set", "sweep.seed=[1,2]", "--folder", "runs/two", "--jobs", 2, "--json")
    assert (code, [run["state"] for run in json.loads(out)["runs"].values()]) == (0, ["finished"] * 2)


def test_a_loss_that_rose_is_marked(tmp_path, fedsum):
    history = go(tmp_path / "rose", eta_l=5.0, rounds=10)
    assert re.match(r"its train loss rose from .* by round 10: try a smaller eta_l", history.reason)
    assert (history.diverged, history.stopped, Run.read(tmp_path / "rose").reason) == (None, None, history.reason)
    assert "train loss rose" in fedsum("show", "rose")[1]


def test_every_diverged_run_warns(tmp_path, fedsum):
    (tmp_path / "sweep.toml").write_text(SMALL + "[sweep]\nseed = [0, 1]\n")
    command = ("run", "sweep.toml", "--set", "eta_l=1e30")
    for arguments in (command, command, ("show", "runs/sweep")):  # the second time nothing is run
        code, out, error = fedsum(*arguments)
        assert (code, out.count("diverged by round 10, and stopped"), error) == (0, 2, "")
        code, out, error = fedsum(*arguments, "--json")
        assert error.count("diverged by round 10, and stopped") == 2
        assert [run["state"] for run in json.loads(out)["runs"].values()] == ["diverged"] * 2


def test_a_run_that_only_its_script_can_resume_says_so(tmp_path):
    """`fedsum resume` refuses a task made in Python: a message must not recommend it."""
    data = [(torch.ones(4, 2), torch.zeros(4, dtype=torch.int64))] * 3
    task = fedsum.tasks.Task(torch.nn.Linear(2, 2), torch.nn.functional.cross_entropy, data)
    options = {"local_steps": 1, "eta_l": 0.1, "folder": tmp_path}

    def stop(done):
        if done.round == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt, match=r"resume with: the same call of simulate$"):
        fedsum.simulate(task, fedsum.FedSUM(), fedsum.Uniform(3, 1), rounds=9, on_round=stop, **options)
    fedsum.simulate(task, fedsum.FedSUM(), fedsum.Uniform(3, 1), rounds=9, **options)
    with pytest.raises(InputError, match=r"rounds = 12: the run in .* has 9; extend it with extend=True$"):
        fedsum.simulate(task, fedsum.FedSUM(), fedsum.Uniform(3, 1), rounds=12, **options)


def test_a_run_with_a_trace_file_is_extended_by_resume(tmp_path):
    """The folder has a digest of the trace, as of a task made in Python, and beside it the path."""
    (tmp_path / "trace.csv").write_text("round,client\n" + "".join(f"{t},{t % 3}\n" for t in range(12)))
    schedule = fedsum.Trace.read(tmp_path / "trace.csv")
    options = {"local_steps": 1, "eta_l": 0.1, "folder": tmp_path / "run"}
    fedsum.simulate(fedsum.tasks.Quadratic.random(3, 2), fedsum.FedSUM(), schedule, rounds=9, **options)
    with pytest.raises(InputError, match=r"extend it with: fedsum resume .* --set rounds=12"):
        fedsum.simulate(fedsum.tasks.Quadratic.random(3, 2), fedsum.FedSUM(), schedule, rounds=12, **options)
