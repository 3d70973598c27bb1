"""Observers: notified of all events in order, however the run ends. Those in examples/ are tested with stand-ins."""

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import fedsum
from fedsum.tasks import Quadratic

EXAMPLES = Path(__file__).parent.parent / "examples"
OPTIONS = {"rounds": 4, "local_steps": 1, "eta_l": 0.1, "eval_every": 2}


class Told(fedsum.Observer):
    """Records every event."""

    def __init__(self):
        self.events = []

    def started(self, run):
        self.events.append(("started", run.state.done))

    def evaluated(self, run, row):
        self.events.append(("evaluated", row["round"]))

    def round_done(self, run, done):
        self.events.append(("round", done.round))

    def finished(self, run, history):
        self.events.append(("finished", history.rows[-1]["round"]))

    def diverged(self, run, reason):
        self.events.append(("diverged", "try a smaller eta_l" in reason))

    def closed(self):
        self.events.append(("closed", None))


def go(observers, **changed):
    task, schedule = Quadratic.random(5, 3), fedsum.Uniform(5, 2)
    return fedsum.simulate(task, fedsum.FedSUM(), schedule, observers=observers, **(OPTIONS | changed))


def test_what_an_observer_is_told():
    told = Told()
    go([told])
    rounds = [("round", 1), ("evaluated", 2), ("round", 2), ("round", 3), ("evaluated", 4), ("round", 4)]
    ends = [("finished", 4), ("closed", None)]
    assert told.events == [("started", 0), ("evaluated", 0), *rounds, *ends]


def test_a_resumed_run_tells_where_it_goes_on(tmp_path):
    go([], folder=tmp_path, checkpoint_rounds=1)
    told = Told()
    go([told], folder=tmp_path)
    assert told.events == [("started", 4), ("finished", 4), ("closed", None)]


def test_divergence_and_errors():
    told = Told()
    with pytest.warns(UserWarning, match="FedSUM diverged by round"):
        go([told], eta_l=1e30, rounds=40)
    assert told.events[-2:] == [("diverged", True), ("closed", None)]

    class Fails(fedsum.Observer):
        def round_done(self, run, done):
            raise ZeroDivisionError

    told = Told()
    with pytest.raises(ZeroDivisionError):
        go([told, Fails()])
    assert told.events[-2:] == [("round", 1), ("closed", None)]


def test_observers_and_on_round_together():
    rounds, told = [], Told()
    go([told], on_round=lambda done: rounds.append((done.round, len(told.events))))
    assert [round for round, _ in rounds] == [1, 2, 3, 4]
    assert rounds[0][1] == 3  # the observers were notified before on_round


@pytest.fixture
def example(monkeypatch):
    """Imports an example with a stand-in for its library."""

    def load(name, library, stand_in):
        monkeypatch.setitem(sys.modules, library, stand_in)
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def test_weights_and_biases(example):
    calls = []
    run = SimpleNamespace(log=lambda row, step: calls.append((step, row)), finish=lambda: calls.append("finish"))
    stand_in = SimpleNamespace(init=lambda **arguments: calls.append(arguments) or run)
    go([example("wandb_observer", "wandb", stand_in).WandB(project="p")])
    assert (calls[0]["project"], calls[0]["config"]["algorithm"]) == ("p", {"name": "FedSUM", "divide_by_seen": False})
    assert [step for step, _ in calls[1:-1]] == [1, 2, 3, 4]
    assert "train_loss" in calls[2][1]
    assert calls[-1] == "finish"


def test_mlflow(example):
    calls = []
    stand_in = SimpleNamespace(
        start_run=lambda **arguments: calls.append(arguments),
        log_params=calls.append,
        log_metrics=lambda row, step: calls.append((step, row)),
        end_run=lambda: calls.append("end"),
    )
    go([example("mlflow_observer", "mlflow", stand_in).MLflow(run_name="r")])
    assert calls[0] == {"run_name": "r"}
    assert calls[1]["rounds"] == 4
    assert (calls[2][0], calls[2][1]["active"], calls[-1]) == (1, 2, "end")


def test_an_observer_that_fails_at_the_end_does_not_undo_the_run(tmp_path):
    class Offline(fedsum.Observer):
        def finished(self, run, history):
            raise ConnectionError("offline")

    with pytest.raises(ConnectionError):
        go([Offline()], folder=tmp_path)
    assert fedsum.Run.read(tmp_path).state == "finished"
    assert (tmp_path / "model.safetensors").exists()


def test_every_observer_is_closed(tmp_path):
    class Full(fedsum.Observer):
        def closed(self):
            raise OSError("No space left on device")

    told = Told()
    with pytest.raises(OSError, match="No space left"):
        go([told, Full()], folder=tmp_path)
    assert told.events[-1] == ("closed", None)
    assert fedsum.Run.read(tmp_path).state == "finished"
    told = Told()
    with pytest.raises(fedsum.InputError, match="device"):
        go([told], device="nowhere")
    assert told.events == [("closed", None)]
