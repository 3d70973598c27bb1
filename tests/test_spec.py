"""The settings language: parsed once, dumped and parsed again to the same spec, compared by what it computes."""

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedsum
from fedsum import InputError, RunSpec
from fedsum.algorithms import ALGORITHMS
from fedsum.cli.settings_command import setting_rows
from fedsum.spec import SETTINGS, first_difference, toml_text
from fedsum.tasks import data
from fedsum.training import OPTIONS, Options
from fedsum.training import rates as rates_module

BASE = {
    "rounds": 6,
    "local_steps": 2,
    "eta_l": 0.1,
    "task": {"name": "digits", "clients": 12},
    "algorithm": "FedSUM",
    "schedule": {"name": "Uniform", "size": 3},
}

positive = st.floats(1e-6, 1e3)
shares = st.floats(0.01, 1.0)
rates = st.one_of(
    positive,
    st.builds(lambda eta_0, over: {"name": "InverseSqrt", "eta_0": eta_0, "over": over}, positive, positive),
    st.just({"name": "inverse-sqrt"}),
    st.lists(positive, min_size=9, max_size=12),
    st.lists(positive, min_size=9, max_size=12).map(lambda values: {"name": "PerRound", "values": values}),
)
tasks = st.one_of(
    st.sampled_from(["digits", "MNIST", "CIFAR-10", {"name": "svhn"}]),
    st.fixed_dictionaries(
        {"name": st.sampled_from(["digits", "fashion_mnist", "cifar100"])},
        optional={
            "clients": st.integers(1, 500),
            "alpha": positive,
            "partition": st.sampled_from(["dirichlet", "iid", "shards", "coarse_label"]),
            "model": st.sampled_from(["mlp", "logistic"]),
            "augment": st.sampled_from(["crop", "crop+flip"]),
            "seed": st.integers(0, 9),
        },
    ),
    st.fixed_dictionaries(
        {"name": st.just("quadratic"), "n": st.integers(1, 30), "d": st.integers(1, 9)}, optional={"noise": shares}
    ),
)
algorithms = st.one_of(
    st.sampled_from([*ALGORITHMS, "fedsum-cr", "FEDAVG"]),
    st.builds(lambda cutoff: {"name": "FedAU", "cutoff": cutoff}, st.integers(1, 99)),
    st.builds(lambda clip: {"name": "FedAWE", "clip": clip}, positive),
)
schedules = st.one_of(
    st.just({"name": "uniform", "size": 1}),
    st.builds(lambda p: {"name": "Independent", "p": p}, shares),
    st.builds(lambda p: {"name": "independent", "p": {"name": "PerRound", "values": p}}, st.lists(shares, min_size=9)),
    st.builds(lambda group, drop: {"name": "Biased", "group": group, "drop": drop}, st.integers(1, 20), shares),
    st.builds(lambda on, off: {"name": "Markov", "on": on, "off": off}, st.floats(0, 0.9), st.floats(0, 0.9)),
    st.builds(lambda repeat: {"name": "Explicit", "sets": [[0], []], "repeat": repeat}, st.booleans()),
)
options = {
    "eta_g": positive,
    "batch_size": st.integers(1, 512),
    "seed": st.integers(0, 2**64 - 1),
    "eval_every": st.integers(1, 50),
    "eval_last": st.integers(0, 50),
    "eval_model": st.sampled_from(["server", "clients"]),
    "dtype": st.sampled_from(["float32", "float64"]),
    "precision": st.sampled_from(["fp32", "tf32"]),
    "deterministic": st.booleans(),
    "engine": st.sampled_from(["auto", "loop", "batched", "workers"]),
    "device": st.sampled_from(["auto", "cpu", "cuda", "cuda:1"]),
    "checkpoint_rounds": st.integers(1, 9),
    "checkpoint_seconds": positive,
}
tables = st.fixed_dictionaries(
    {
        "rounds": st.integers(1, 9),
        "local_steps": st.integers(1, 9),
        "eta_l": rates,
        "task": tasks,
        "algorithm": algorithms,
        "schedule": schedules,
    },
    optional=options,
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(tables)
def test_parse_is_the_inverse_of_dump(table):
    spec = RunSpec.parse(table)
    dumped = spec.dump()
    assert RunSpec.parse(dumped) == spec
    assert RunSpec.parse(tomllib.loads(toml_text(dumped))) == spec
    assert first_difference(dumped, RunSpec.parse(dumped).dump()) is None


def test_a_new_rate_needs_no_more_than_a_name(monkeypatch):
    @dataclass(frozen=True)
    class Cosine:
        eta_0: float = 0.1

        def __call__(self, t):
            return self.eta_0 * (2 + math.cos(t)) / 3

    monkeypatch.setitem(rates_module.RATES, "Cosine", Cosine)
    spec = RunSpec.parse(BASE | {"rounds": 12_000, "eta_l": {"name": "cosine", "eta_0": 0.2}})
    assert spec.dump()["eta_l"] == {"name": "Cosine", "eta_0": 0.2}
    assert RunSpec.parse(spec.dump()) == spec


def test_every_option_is_among_the_random_ones():
    assert {option.name for option in OPTIONS} == {"rounds", "local_steps", "eta_l", *options}


@pytest.mark.parametrize("part", ["task", "algorithm", "schedule"])
def test_letter_case_is_no_other_setting(part):
    table = BASE[part] if isinstance(BASE[part], dict) else {"name": BASE[part]}
    shouted = BASE | {part: {**table, "name": table["name"].upper()}}
    assert RunSpec.parse(shouted) == RunSpec.parse(BASE)


def test_objects_and_files_say_the_same():
    spec = RunSpec.parse(BASE)
    task = spec.task.make()
    made = RunSpec.of(task, fedsum.FedSUM(), fedsum.Uniform(12, 3), Options(rounds=6, local_steps=2, eta_l=0.1))
    assert made == spec


def test_defaults_are_written_down():
    spec = RunSpec.parse(BASE | {"task": "digits", "schedule": "biased"})
    assert spec.schedule.fields == {"start": 0.5, "drop": 0.05, "group": 11, "floor": 0.05}
    assert (spec.task.fields["clients"], spec.task.fields["alpha"], spec.schedule.n) == (100, 0.1, 100)
    assert spec.dump()["batch_size"] == 128


def test_the_number_of_clients_is_the_tasks():
    assert RunSpec.parse(BASE).schedule.n == 12
    with pytest.raises(InputError, match=r"schedule\.n = 5: the task has 12 clients"):
        RunSpec.parse(BASE | {"schedule": {"name": "Uniform", "size": 3, "n": 5}})
    natural = RunSpec.parse(BASE | {"task": {"name": "cifar100", "partition": "coarse_label"}})
    assert natural.schedule.n is None
    assert natural.with_clients(20).dump()["schedule"]["n"] == 20


def test_a_run_loads_its_data_once(fedsum, tmp_path, monkeypatch):
    loads, load = [], data.load
    monkeypatch.setattr(data, "load", lambda name: loads.append(name) or load(name))
    (tmp_path / "one.toml").write_text(toml_text(BASE))
    assert fedsum("run", "one.toml")[0] == 0
    assert loads == ["digits"]
    assert fedsum("show", "runs/one")[0] == 0
    assert loads == ["digits"]


def test_a_sweep_loads_nothing_before_its_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(data, "load", None)
    sweep = {"algorithm": ["FedSUM", "FedAvg"], "task.seed": [0, 1]}
    assert len(fedsum.runs.expand(BASE | {"sweep": sweep}, tmp_path)) == 4


def test_simulate_takes_every_option_with_its_default():
    import inspect

    signature = inspect.signature(fedsum.simulate)
    for option in OPTIONS:
        parameter = signature.parameters[option.name]
        assert parameter.default == (inspect.Parameter.empty if option.name in BASE else option.default)
        assert f"{option.name}: {option.metadata['doc']}" in fedsum.simulate.__doc__


def test_settings_are_listed(fedsum):
    assert [row["name"] for row in setting_rows()] == list(SETTINGS)
    code, out, _ = fedsum("settings")
    assert (code, "global learning rate" in out, "samples per gradient" in out) == (0, True, True)
    assert "required" in fedsum("settings", "--json")[1]
    table = fedsum("settings", "--markdown")[1].strip()
    assert table in (Path(__file__).parent.parent / "docs/runs.md").read_text()


# Functions are compared by what they compute.


def task(loss=torch.nn.functional.cross_entropy, prepare=None, shift=0.0):
    draw = torch.Generator().manual_seed(0)
    client_data = [(torch.randn(12, 3, generator=draw) + shift, torch.arange(12) % 2) for _ in range(9)]
    return fedsum.tasks.Task(lambda: torch.nn.Linear(3, 2), loss, client_data, prepare=prepare)


def difference(one, other):
    schedule, chosen = fedsum.Uniform(9, 2), Options(rounds=3, local_steps=1, eta_l=0.1)
    dumps = [RunSpec.of(made, fedsum.FedSUM(), schedule, chosen).dump() for made in (one, other)]
    found = first_difference(*dumps)
    return found and found[0]


def test_a_loss_that_computes_the_same_is_the_same():
    def written_again(outputs, targets):
        unused = "another constant, other bytecode"
        del unused
        return torch.nn.functional.nll_loss(outputs.log_softmax(1), targets)

    assert difference(task(), task(written_again)) is None
    assert difference(task(), task(lambda o, y: 1.0000001 * torch.nn.functional.cross_entropy(o, y))) is None
    assert difference(task(), task(lambda o, y: 1.0001 * torch.nn.functional.cross_entropy(o, y))) == "task.loss"


def test_outputs_that_round_to_neighbours_are_the_same():
    dumped = {"task": {"name": "mine", "loss": 1.23456, "prepare": [0.5, 1.00001]}}
    near = {"task": {"name": "mine", "loss": 1.23457, "prepare": [0.5, 1.00000]}}
    far = {"task": {"name": "mine", "loss": 1.23461, "prepare": [0.5, 1.00000]}}
    assert first_difference(dumped, near) is None
    assert first_difference(dumped, far) == ("task.loss", 1.23456, 1.23461)


def test_a_preparation_is_compared_by_its_output():
    same = [lambda x, dtype: (x * 2).to(dtype), lambda x, dtype: (x + x).to(dtype)]
    assert difference(task(prepare=same[0]), task(prepare=same[1])) is None
    # The same mean and size in another order.
    turned = task(prepare=lambda x, dtype: (x * 2).to(dtype).flip(0))
    assert difference(task(prepare=same[0]), turned) in ("task.loss", "task.prepare")
    assert difference(task(), task(shift=1.0)) == "task.sha256"

    def constant(outputs, targets):
        return outputs.sum() * 0 + 1

    assert difference(task(constant, same[0]), task(constant, lambda x, dtype: x.to(dtype))) == "task.prepare"


def test_a_task_of_ones_own_is_compared_by_its_gradient():
    class Mine(fedsum.tasks.Quadratic):
        power = 1.0

        def gradient(self, x, client, batch):
            return self.power * super().gradient(x, client, batch)

    class Stronger(Mine):
        power = 2.0

    Stronger.__qualname__, Stronger.__module__ = Mine.__qualname__, Mine.__module__
    one, again, other = (cls([[1.0]] * 9, [[1.0]] * 9) for cls in (Mine, Mine, Stronger))
    assert difference(one, again) is None
    assert difference(one, other) == "task.gradient"
