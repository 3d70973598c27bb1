"""The settings language: parsed once, dumped and parsed again to the same spec, compared by its results."""

import dataclasses
import hashlib
import math
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedsum
from fedsum import InputError, Run, RunSpec, Trace
from fedsum.algorithms import ALGORITHMS
from fedsum.cli.settings_command import setting_rows
from fedsum.spec import SETTINGS, ScheduleSpec, first_difference, imported, toml_text
from fedsum.spec.task_fingerprint import add_to_digest
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
    st.builds(lambda eta_0, t: {"name": "Cosine", "eta_0": eta_0, "over": t, "warmup": t}, positive, st.integers(1, 9)),
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
    st.builds(lambda p: {"name": "KnownFedAvg", "p": p}, st.one_of(shares, st.lists(shares, min_size=1, max_size=9))),
    st.builds(
        lambda inner, optimiser: {"name": "server-opt", "algorithm": inner, "optimiser": optimiser},
        st.sampled_from(["fedsum", {"name": "FedAU", "cutoff": 3}]),
        st.one_of(st.just("yogi"), st.builds(lambda lr: {"name": "Adam", "lr": lr, "beta1": 0.5}, positive)),
    ),
)
schedules = st.one_of(
    st.just({"name": "uniform", "size": 1}),
    st.builds(lambda p: {"name": "Independent", "p": p}, shares),
    st.builds(lambda p: {"name": "independent", "p": {"name": "PerRound", "values": p}}, st.lists(shares, min_size=9)),
    st.builds(lambda group, drop: {"name": "Biased", "group": group, "drop": drop}, st.integers(1, 20), shares),
    st.builds(lambda on, off: {"name": "Markov", "on": on, "off": off}, st.floats(0, 0.9), st.floats(0, 0.9)),
    st.builds(lambda repeat: {"name": "Explicit", "sets": [[0], []] * 5, "repeat": repeat}, st.booleans()),
    st.builds(lambda dwell: {"name": "Periodic", "groups": 1, "dwell": dwell, "size": 1}, st.integers(1, 9)),
    st.builds(lambda period: {"name": "Diurnal", "peak": 0.5, "trough": 0, "period": period}, st.floats(1, 99)),
    st.builds(
        lambda order: {"name": "sampled", "size": 1, "order": order, "availability": {"name": "Sine", "size": 1}},
        st.sampled_from(["uniform", "oldest"]),
    ),
)
options = {
    "eta_g": positive,
    "batch_size": st.integers(1, 512),
    "clip_norm": positive,
    "weight_decay": st.floats(0, 1),
    "seed": st.integers(0, 2**64 - 1),
    "eval_every": st.integers(1, 50),
    "eval_last": st.integers(0, 50),
    "eval_model": st.sampled_from(["server", "clients"]),
    "per_client": st.booleans(),
    "stop": st.sampled_from([{"metric": "train_loss", "below": 0.1}, {"metric": "test_accuracy", "patience": 3}]),
    "devices": st.sampled_from(
        [
            {"seconds_per_step": 0.1},
            {"up": {"name": "LogNormal", "median": 1e6, "spread": 0.5}, "down": [1.0, 2.0]},
            {"seconds_per_step": [1, 2], "catalogue": True},
        ]
    ),
    "deadline": positive,
    "enough": shares,
    "dtype": st.sampled_from(["float32", "float64"]),
    "precision": st.sampled_from(["fp32", "tf32", "bf16"]),
    "deterministic": st.booleans(),
    "engine": st.sampled_from(["auto", "loop", "batched", "streams", "workers"]),
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
).map(
    lambda table: table if "devices" in table else {k: v for k, v in table.items() if k not in ("deadline", "enough")}
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
    assert {option.name for option in OPTIONS} == {"rounds", "local_steps", "local_epochs", "eta_l", *options}


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


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"schedule": {"name": "Uniform", "size": 30}}, "schedule.size = 30: a whole number from 1 to 12 (n)"),
        ({"schedule": {"name": "Independent", "p": [0.5, 2]}}, "schedule.p of shape = (2,): "),
        ({"task": {"name": "digits", "clients": 3000}, "schedule": "Biased"}, "task.clients = 3000: a whole number"),
        ({"task": {"name": "digits", "clients": 12, "alpha": 0}}, "task.alpha = 0: a finite number, at least"),
        ({"task": {"name": "quadratic", "n": 0, "d": 2}}, "task.n = 0: a whole number from 1 up"),
    ],
)
def test_errors_name_the_part_of_a_setting(part, message):
    with pytest.raises(InputError, match=re.escape(message)):
        RunSpec.parse(BASE | part).task.make()


def test_a_trace_of_other_clients_than_the_tasks_names_the_way_out(tmp_path):
    (tmp_path / "seen.csv").write_text("round,client\n" + "".join(f"{t},c{t % 3}\n" for t in range(9)))
    trace = {"name": "Trace", "path": str(tmp_path / "seen.csv")}
    way_out = "it has 3 clients and the task 12: add clients = 12 to the schedule if the others are never active, or"
    for schedule in (trace, {"name": "Sampled", "size": 1, "availability": trace}):
        with pytest.raises(InputError, match=rf"schedule\.path = .*: {way_out} choose a task with 3 clients"):
            RunSpec.parse(BASE | {"schedule": schedule})
    assert RunSpec.parse(BASE | {"schedule": trace | {"clients": 12}}).schedule.n == 12
    with pytest.raises(InputError, match="it has 3 clients and the task 2: choose a task with 3 clients"):
        RunSpec.parse(BASE | {"task": {"name": "digits", "clients": 2}, "schedule": trace})


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
        required = option.default is dataclasses.MISSING
        assert parameter.default == (inspect.Parameter.empty if required else option.default)
        assert f"{option.name}: {option.metadata['doc']}" in fedsum.simulate.__doc__


def test_settings_are_listed(fedsum):
    assert [row["name"] for row in setting_rows()] == list(SETTINGS)
    code, out, _ = fedsum("settings")
    assert (code, "global learning rate" in out, "samples per gradient" in out) == (0, True, True)
    assert "required" in fedsum("settings", "--json")[1]
    table = fedsum("settings", "--markdown")[1].strip()
    assert table in (Path(__file__).parent.parent / "docs/reference/settings.md").read_text()


# Functions are compared by their outputs.


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


# Regressions.


SHORT = {"rounds": 2, "local_steps": 1, "eta_l": 0.1}


class Plain:
    """A user's own task with its data in a list and N as a NumPy integer."""

    has_dropout = False

    def __init__(self, centers):
        self.centers, self.n = [torch.tensor([float(center)]) for center in centers], np.int64(len(centers))

    def to(self, device, dtype):
        return self

    def init(self, seed):
        return torch.zeros(1)

    def batches(self, seed, t, client, K, batch_size):
        return torch.zeros(K, 1)

    def gradient(self, x, client, batch):
        return x - self.centers[client]

    def gradients(self, x, clients, batch):
        return torch.stack([self.gradient(x[row], client, batch) for row, client in enumerate(clients.tolist())])

    def evaluate(self, x):
        return {"train_loss": float((x - torch.stack(self.centers)).square().mean())}

    def model(self, x):
        return x


def test_data_in_lists_counts_and_numpy_counts_clients(tmp_path):
    one, other = Plain(range(9)), Plain([0, 1, 2, 3, 4, 5, 6, 7, 9])  # client 0 has the same data
    assert difference(one, Plain(range(9))) is None
    assert difference(one, other) == "task.sha256"
    fedsum.simulate(one, fedsum.FedSUM(), fedsum.Uniform(9, 2), folder=tmp_path / "run", **SHORT)
    assert type(ScheduleSpec("Uniform", {"size": 2}).with_clients(one.n).n) is int
    large, changed = torch.zeros(5000), torch.zeros(5000)
    changed[2500] = 1.0  # in the part that repr leaves out
    digests = [hashlib.sha256() for _ in range(2)]
    for digest, value in zip(digests, ([large], {"a": [changed]}["a"]), strict=True):
        add_to_digest(digest, value)
    assert digests[0].hexdigest() != digests[1].hexdigest()


class Opaque:
    """An object without a repr of its own, which would show its address."""


def test_values_that_have_an_address_are_the_same_in_every_process():
    def digest(value):
        found = hashlib.sha256()
        add_to_digest(found, value)
        return found.hexdigest()

    keep = [Opaque(), Opaque()]  # alive, so that their addresses differ
    assert digest([keep[0], 1]) == digest([keep[1], 1]) != digest([keep[0], 2])
    assert digest({"fn": lambda: 1}) == digest({"fn": lambda: 1})
    assert list({8, 0}) != list({0, 8})  # as sets of strings, whose order differs in every process
    assert digest([{8, 0}]) == digest([{0, 8}]) != digest([{1, 8}])
    ragged = [np.array([np.zeros(2), np.full(3, value)], dtype=object) for value in (1.0, 1.0, 2.0)]
    assert digest(ragged[0]) == digest(ragged[1]) != digest(ragged[2])


def test_the_data_of_a_task_may_be_bfloat16():
    half = [torch.linspace(0, 1, 6, dtype=torch.bfloat16).reshape(3, 2) + shift for shift in (0, 0, 1)]
    targets = torch.tensor([0, 1, 1])
    model = torch.nn.Linear(2, 2)
    one, same, other = (
        fedsum.tasks.Task(model, torch.nn.functional.cross_entropy, [(inputs, targets)]) for inputs in half
    )
    assert difference(one, same) is None
    assert difference(one, other) == "task.sha256"


def test_what_draws_is_the_same_every_time():
    def noisy(x, dtype):
        return (x + torch.randn_like(x)).to(dtype)

    specs = []
    for seed in (1, 2):
        torch.manual_seed(seed)  # the state of torch's generator must not matter
        made = RunSpec.of(task(prepare=noisy), fedsum.FedSUM(), fedsum.Uniform(9, 2), Options(**SHORT))
        specs.append(made.dump()["task"])
    assert specs[0] == specs[1]


def test_rounding_of_a_sum_that_cancels_and_missing_values_are_no_difference():
    def tables(*values):
        return [{"task": {"name": "mine", "gradient": list(value)}} for value in values]

    assert first_difference(*tables((2.6e-11, 0.5, 0.1), (-1.2e-10, 0.5, 0.1))) is None
    assert first_difference(*tables((0.01, 0.5, 0.1), (-0.01, 0.5, 0.1)))[0] == "task.gradient"
    assert first_difference(*tables((math.nan,) * 3, (float("nan"),) * 3)) is None


def test_a_task_that_trains_in_its_own_way_need_not_have_a_loss():
    class Own(fedsum.tasks.Task):
        def gradient(self, x, client, batch):
            return x + client

    client_data = [(torch.ones(4, 3), torch.zeros(4)) for _ in range(9)]
    assert difference(Own(torch.nn.Linear(3, 1), None, client_data), task()) is not None


def test_a_refused_schedule_does_not_claim_the_folder(tmp_path):
    options = {**SHORT, "folder": tmp_path / "run"}
    with pytest.raises(InputError, match=r"schedule\.n = 8: the task has 9 clients"):
        fedsum.simulate(task(), fedsum.FedSUM(), fedsum.Uniform(8, 2), **options)
    fedsum.simulate(task(), fedsum.FedSUM(), fedsum.Uniform(9, 2), **options)


OWN = """
import fedsum

class Damped(fedsum.FedAvg):
    def __init__(self, beta):
        self._beta, self.rate = beta, None

    def merge(self, server, total, m, now):
        moved = super().merge(server, total, m, now)
        beta = self._beta(now.t) if callable(self._beta) else self._beta
        return {"x": beta * server["x"] + (1 - beta) * moved["x"]}

def damped(strength=0.5):
    return Damped(strength)
"""


@pytest.mark.parametrize("fields", [{}, {"strength": 0.25}, {"strength": {"name": "PerRound", "values": [0.1] * 6}}])
def test_an_algorithm_from_a_function_is_the_same_in_a_run_a_sweep_and_a_resume(fields, fedsum, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    table = BASE | {"task": {"name": "quadratic", "n": 12, "d": 3}, "algorithm": {"name": "own.py:damped", **fields}}
    (tmp_path / "one.toml").write_text(toml_text(table))
    (tmp_path / "many.toml").write_text(toml_text(table | {"sweep": {"seed": [0]}}))
    assert fedsum("run", "one.toml")[0] == 0
    assert fedsum("run", "many.toml")[0] == 0
    assert fedsum("resume", "runs/one", "--trust")[0] == 0
    one, many = (Run.read(tmp_path / "runs" / name) for name in ("one", "many/seed=0"))
    assert one.last["error"] == many.last["error"]
    assert RunSpec.parse(one.config).dump()["algorithm"] == one.config["algorithm"]


def test_a_trace_is_read_once(fedsum, tmp_path, monkeypatch):
    reads, read = [], Trace.read
    monkeypatch.setattr(Trace, "read", lambda **options: reads.append(options["path"]) or read(**options))
    (tmp_path / "trace.csv").write_text("round,client\n" + "".join(f"{t},{t}\n" for t in range(6)))
    schedule = {"name": "Trace", "path": "trace.csv", "clients": 12}
    (tmp_path / "one.toml").write_text(toml_text(BASE | {"schedule": schedule}))
    assert fedsum("run", "one.toml")[0] == 0
    assert len(reads) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["grid", "one.toml", "--set", "sweep=5"], "sweep = 5: a table"),
        (["run", "one.toml", "--set", "task=builtins:int"], "task = "),
        (["run", "one.toml", "--set", "device=true"], "device = True"),
    ],
)
def test_one_line_for_odd_settings(words, message, fedsum, tmp_path):
    (tmp_path / "one.toml").write_text(toml_text(BASE))
    code, _, error = fedsum(*words)
    assert (code, message in error, error.count("\n")) == (2, True, 1)


def test_devices_and_dtypes_are_said_by_name():
    for device, name in ((torch.device("cpu"), "cpu"), (1, "cuda:1"), ("auto", "auto")):
        assert Options(rounds=1, local_steps=1, eta_l=0.1, device=device).dump()["device"] == name
    double = Options(rounds=1, local_steps=1, eta_l=0.1, dtype=torch.float64)
    assert Options.parse(double.dump()) == double


def test_a_dtype_with_fewer_bits_is_refused():
    way_out = "float64'?; for a network with fewer bits, use precision='bf16'"
    for dtype in (torch.float16, torch.bfloat16):
        with pytest.raises(InputError, match=f"dtype = {dtype}: torch.float32 or torch.{way_out}"):
            Options(rounds=1, local_steps=1, eta_l=0.1, dtype=dtype)
    with pytest.raises(InputError, match=f"dtype = 'bfloat16': 'float32' or '{way_out}"):
        Options.parse({"rounds": 1, "local_steps": 1, "eta_l": 0.1, "dtype": "bfloat16"})


def test_a_field_that_was_added_later_has_its_default():
    """A run recorded before MIFA had `displacements` is the same run as one without them."""
    options = Options(rounds=3, local_steps=1, eta_l=0.1)
    dumped = RunSpec.of(task(), fedsum.MIFA(), fedsum.Uniform(9, 2), options).dump()
    older = {**dumped, "algorithm": {"name": "MIFA"}}
    assert dumped["algorithm"] != older["algorithm"]
    assert first_difference(older, dumped) is None
    other = RunSpec.of(task(), fedsum.MIFA(displacements=True), fedsum.Uniform(9, 2), options).dump()
    assert first_difference(older, other) == ("algorithm.displacements", False, True)
    unknown = {**dumped, "algorithm": {"name": "mine:MIFA"}}
    assert first_difference(unknown, {**dumped, "algorithm": {"name": "mine:MIFA", "decay": 1}})[0] == "algorithm.decay"


def test_a_name_that_a_file_lacks_is_answered_with_the_nearest(tmp_path):
    file = tmp_path / "own_patients.py"
    file.write_text("from pathlib import Path\ndef patients(n): ...\n_hidden = print\nrows = 3\n")
    accepted = f"not in {file}; did you mean 'patients'? known: Path, patients"
    with pytest.raises(InputError, match=re.escape(accepted)):
        imported("task", f"{file}:patientz")
