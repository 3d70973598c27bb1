"""A user's own metrics: computed once on all outputs, with a direction that travels to every command."""

import json
import tomllib
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn import functional as F

import fedsum
from fedsum import FedAvg, InputError, Metric, Uniform, simulate
from fedsum.base.metrics import BETTER, LABELS, better
from fedsum.cli.grid_command import _at_the_edge as at_the_edge
from fedsum.report import final_table
from fedsum.report.page import payload
from fedsum.runs import directions, read_runs
from fedsum.tasks import Task, directions_of, network_of

TASK = """
import torch
from sklearn.metrics import roc_auc_score
import fedsum

draw = torch.Generator().manual_seed(0)
inputs = torch.randn(200, 3, generator=draw)
targets = (inputs[:, :1] + 0.5 * torch.randn(200, 1, generator=draw) > 0).float()


def hospitals(stated=True):
    auc = fedsum.Metric(lambda outputs, t: roc_auc_score(t, outputs), better="higher", on=("test", "train"))
    metrics = {"auc": auc}
    clients = [(inputs[i : i + 30], targets[i : i + 30]) for i in range(0, 150, 30)]
    kind = fedsum.tasks.Task if stated else Unstated
    loss = torch.nn.functional.binary_cross_entropy_with_logits
    return kind(lambda: torch.nn.Linear(3, 1), loss, clients, (inputs[150:], targets[150:]), metrics=metrics)


class Unstated(fedsum.tasks.Task):
    better = {}
"""
SWEEP = """
rounds = 20
local_steps = 2
eta_l = 0.3
task = {name = "task.py:hospitals"}
algorithm = "FedSUM"
schedule = {name = "uniform", size = 3}
[sweep]
eta_l = [1e-6, 0.3]
"""


def binary(loss=F.binary_cross_entropy_with_logits, shape=(1,), dtype=torch.float32, **options):
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(60, 4, generator=draw)
    targets = (inputs[:, 0] > 0).to(dtype).reshape(60, *shape)
    model = nn.Linear(4, 1) if shape else nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    nn.init.constant_(next(model.parameters()), 0.0)
    with torch.no_grad():
        next(model.parameters())[0, 0] = 1.0
        list(model.parameters())[1][0] = 0.0
    clients = [(inputs[:20], targets[:20]), (inputs[20:40], targets[20:40])]
    return Task(model, loss, clients, (inputs[40:], targets[40:]), **options)


def auc(outputs, targets):
    return roc_auc_score(targets, outputs)


def test_a_metric_is_called_once_on_all_outputs(monkeypatch):
    monkeypatch.setitem(fedsum.tasks.samples._EVALUATION_BYTES, "cpu", 16 * 4 * 4 * 3)  # three samples at a time
    seen = []

    def count(outputs, targets):
        seen.append((tuple(outputs.shape), tuple(targets.shape)))
        return auc(outputs, targets)

    task = binary(metrics={"auc": Metric(count, better="higher"), "mean": Metric(_mean, "lower", on="train")})
    x = torch.tensor([0.3, -0.2, 0.5, 0.1, 0.0])
    assert len(list(task._all_outputs(x, task.inputs))) > 5
    row = task.evaluate(x)
    assert seen == [((20, 1), (20, 1))]
    model = task.model(x)
    assert row["test_auc"] == auc(model(task.test_data[0]).detach(), task.test_data[1])
    assert row["train_mean"] == pytest.approx(float(model(task.inputs).detach().mean()))
    assert directions_of(task) == task.better == {"test_auc": "higher", "train_mean": "lower"}
    network = network_of(task)  # as an engine with its own kernels evaluates
    assert network.evaluate(x, network.outputs) == row


def _mean(outputs, targets):
    return outputs.mean()


def test_metrics_are_refused_at_the_door():
    with pytest.raises(InputError, match="better = 'more': 'higher' or 'lower'"):
        Metric(auc, better="more")
    with pytest.raises(InputError, match="on = 'validation'"):
        Metric(auc, better="higher", on="validation")
    with pytest.raises(InputError, match="fn = 3"):
        Metric(3, better="higher")
    for name in ("accuracy", "loss", "a b"):
        with pytest.raises(InputError, match=f"metrics = '{name}': another name"):
            binary(metrics={name: Metric(auc, better="higher")})
    with pytest.raises(InputError, match=r"metrics\['auc'\] = 'function': fedsum.Metric"):
        binary(metrics={"auc": auc})
    clients = [(torch.zeros(4, 2), torch.zeros(4))]
    with pytest.raises(InputError, match="no test_data"):
        Task(nn.Linear(2, 1), F.mse_loss, clients, metrics={"auc": Metric(auc, better="higher")})
    vectors = binary(metrics={"all": Metric(lambda outputs, targets: outputs, better="higher")})
    with pytest.raises(InputError, match=r"metrics\['all'\] = 'Tensor': a function that returns one number"):
        vectors.evaluate(vectors.init(0))


@pytest.mark.parametrize(
    ("loss", "shape", "dtype"),
    [
        (F.binary_cross_entropy_with_logits, (1,), torch.float32),
        (nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0)), (), torch.float32),
        (lambda out, t: F.binary_cross_entropy_with_logits(out[:, 0], t.float()), (), torch.int64),
        (lambda out, t: F.soft_margin_loss(out, 2 * t - 1), (1,), torch.float32),
    ],
    ids=["function", "module", "own, whole labels", "soft margin"],
)
def test_a_model_with_one_logit_has_an_accuracy(loss, shape, dtype):
    if dtype is torch.int64:  # [B, 1] outputs and [B] labels: an argmax would always predict 0
        pairs = binary()
        whole = [(pairs.inputs[:40], pairs.targets[:40, 0].long())]
        task = Task(pairs.model(pairs.init(0)), loss, whole, (pairs.test_data[0], pairs.test_data[1][:, 0].long()))
    else:
        task = binary(loss, shape, dtype)
    assert task.evaluate(torch.tensor([1.0, 0, 0, 0, 0]))["test_accuracy"] == 1.0
    assert task.evaluate(torch.tensor([-1.0, 0, 0, 0, 0]))["test_accuracy"] == 0.0
    half = task.evaluate(torch.tensor([1.0, 0, 0, 0, -100.0]))["test_accuracy"]
    assert half == pytest.approx(float((task.test_data[1] == 0).float().mean()))


def test_a_float64_model_has_the_same_metrics():
    pairs = binary()
    data = (pairs.inputs, pairs.targets)
    model = pairs.model(pairs.init(0)).double()
    task = Task(model, F.binary_cross_entropy_with_logits, [data], pairs.test_data)
    assert task.init(0).dtype == task.dtype == torch.float32  # of an unbound task, as a deployment uses it
    assert task.to(torch.device("cpu"), torch.float32).evaluate(pairs.init(0))["test_accuracy"] == 1.0
    with pytest.raises(InputError, match="as batch statistics do"):
        Task(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1)).double(), F.mse_loss, [data])


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, inputs):
        return self.linear(inputs), inputs


def test_metrics_need_one_output():
    pairs = binary()
    data = (pairs.inputs, pairs.targets)

    def loss(outputs, targets):
        return F.binary_cross_entropy_with_logits(outputs[0], targets)

    assert Task(Pair, loss, [data], pairs.test_data).evaluate(pairs.init(0))["test_loss"] > 0
    with_metric = Task(Pair, loss, [data], pairs.test_data, metrics={"auc": Metric(auc, better="higher")})
    with pytest.raises(InputError, match="metrics with outputs = 'tuple': a model that returns one tensor"):
        with_metric.evaluate(pairs.init(0))
    with pytest.raises(InputError, match="per_client with outputs = 'tuple': a model that returns one tensor"):
        Task(Pair, loss, [data], client_test_data=[data]).evaluate_clients(pairs.init(0))


def test_probabilities_are_compared_with_a_half_and_squared_errors_are_no_accuracy():
    def half_up(loss):
        draw = torch.Generator().manual_seed(1)
        inputs = torch.rand(40, 1, generator=draw)
        data = (inputs, (inputs > 0.5).float())
        model = nn.Linear(1, 1, bias=False)
        return Task(model, loss, [data], data).evaluate(torch.ones(1))

    assert half_up(nn.BCELoss())["test_accuracy"] == 1.0
    assert half_up(lambda p, t: F.binary_cross_entropy(p, t))["test_accuracy"] == 1.0
    with pytest.warns(UserWarning, match="no test_accuracy: the model has one output, and the loss does not tell"):
        assert "test_accuracy" not in half_up(F.mse_loss)


def test_every_label_of_a_metric_has_a_direction_or_is_progress():
    assert set(LABELS) - set(BETTER) - {"round", "tau", "late"} == {
        *("server_train_loss", "server_test_accuracy"),  # as without the prefix
        *("client_accuracy_gap", "client_loss_gap"),  # best at zero
    }
    assert better("server_test_accuracy", {}) == "higher"


@pytest.fixture
def swept(tmp_path, fedsum):
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    return fedsum


def test_the_direction_travels_to_grid_show_pack_and_report(tmp_path, swept):
    code, out, error = swept("grid", "sweep.toml", "--by", "test_auc")
    assert code == 0, error
    runs = {run.folder.name: run for run in read_runs(tmp_path / "runs/sweep")}
    values = {name: run.last["test_auc"] for name, run in runs.items()}
    assert values["eta_l=0.3"] > 0.85 > 0.75 > values["eta_l=1e-06"]  # the two must differ
    assert "best: eta_l=0.3, test_auc" in out
    assert error == "note: eta_l = 0.3 of FedSUM is the largest of the sweep; also try larger ones\n"
    assert f"{values['eta_l=0.3']:.4g}" in out  # differences of an AUC are often in the third digit
    assert tomllib.loads((tmp_path / "runs/sweep/best.toml").read_text()) == {"eta_l": 0.3}
    config = tomllib.loads((tmp_path / "runs/sweep/eta_l=0.3/config.toml").read_text())
    assert config["metrics"] == {"test_auc": "higher", "train_auc": "higher"}
    assert swept("resume", "runs/sweep", "--trust")[0] == 0  # the table is no setting
    assert "test_auc" in swept("show", "runs/sweep")[1]
    assert swept("pack", "runs/sweep", "--out", "packed.parquet")[0] == 0
    assert (
        swept("grid", "sweep.toml", "--by", "test_auc", "--folder", "packed.parquet")[1].count("best: eta_l=0.3") == 1
    )
    packed = read_runs(tmp_path / "packed.parquet")
    assert payload(packed, "")["metrics"][0]["name"] == "test_accuracy"
    assert payload(packed, "", by="test_auc")["metrics"][0]["name"] == "test_auc"
    assert swept("report", "packed.parquet", "--by", "test_auc")[0] == 0
    code, _, error = swept("report", "packed.parquet", "--by", "auc")
    assert (code, "by = 'auc': did you mean 'test_auc'?" in error) == (2, True)
    assert directions(packed) == config["metrics"]
    metrics = {metric["name"]: metric for metric in payload(packed, "")["metrics"]}
    assert (metrics["test_auc"]["better"], metrics["test_auc"]["log"]) == ("higher", False)
    assert metrics["test_accuracy"]["better"] == "higher"
    assert (metrics["train_loss"]["better"], metrics["train_loss"]["log"]) == ("lower", True)
    assert "test_auc_last" in final_table(packed)
    page = "<!-- fedsum table\nruns = 'packed.parquet'\nvalues = ['test_auc']\nrows = ['setting']\n-->\n<!-- end -->\n"
    (tmp_path / "page.md").write_text(page)
    assert swept("fill", "page.md")[0] == 0
    text = (tmp_path / "page.md").read_text()
    bold = [line for line in text.splitlines() if "**" in line]
    assert len(bold) == 1
    assert "0.3" in bold[0]


def test_a_direction_that_nothing_states_is_asked_for(tmp_path, swept):
    unstated = ("--set", "task.stated=false", "--folder", "unstated")
    code, _, error = swept("grid", "sweep.toml", "--by", "test_auc", *unstated)
    assert code == 2
    assert "by = 'test_auc': nothing states whether higher or lower is better: add --better higher" in error
    assert not (tmp_path / "unstated").exists()  # asked before anything was trained
    code, out, error = swept("grid", "sweep.toml", "--by", "test_auc", "--better", "higher", *unstated)
    assert (code, "best: eta_l=0.3" in out) == (0, True), error
    code, out, error = swept("grid", "sweep.toml", "--by", "test_auc", "--better", "lower", *unstated)
    assert "best: eta_l=1e-06" in out
    assert "note: eta_l = 1e-06 of FedSUM is the smallest of the sweep; also try smaller ones" in error
    code, _, error = swept("grid", "sweep.toml", "--by", "test_loss", "--better", "higher", *unstated)
    assert (code, "leave it out: test_loss is better if lower" in error) == (2, True)
    code, _, error = swept("grid", "sweep.toml", "--by", "test_auc", "--better", "up", *unstated)
    assert (code, "better = 'up': 'higher' or 'lower'" in error) == (2, True)
    page = json.dumps(payload(read_runs(tmp_path / "unstated"), ""))
    assert '"name": "test_auc", "label": "test auc", "percent": false, "better": null' in page


def test_another_direction_is_refused_on_resume(tmp_path):
    def run(direction):
        task = binary(metrics={"auc": Metric(auc, better=direction)})
        options = {"rounds": 2, "local_steps": 1, "eta_l": 0.1, "folder": tmp_path / "run"}
        return fedsum.simulate(task, fedsum.FedAvg(), fedsum.Uniform(2, 1), **options)

    assert "test_auc" in run("higher").metrics
    run("higher")
    with pytest.raises(InputError, match=r"metrics.test_auc = 'lower': the run in .* has 'higher'"):
        run("lower")


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (nn.CrossEntropyLoss(reduction="none"), r"loss = 'a tensor of shape \(8,\)': the mean over the batch"),
        (lambda outputs, targets: 1.0, "loss = 'a float': the mean over the batch, a tensor of one number"),
    ],
    ids=["one number per sample", "no tensor"],
)
def test_a_loss_that_is_no_mean_is_refused(loss, message):
    task = Task(nn.Linear(4, 2), loss, [(torch.ones(4, 4), torch.tensor([0, 1, 0, 1]))] * 2)
    with pytest.raises(InputError, match=message):
        simulate(task, FedAvg(), Uniform(2, 1), rounds=1, local_steps=1, eta_l=0.1)


@pytest.mark.parametrize("test_data", [5, np.zeros(3), [torch.zeros(3, 4)]])
def test_test_data_of_another_kind_is_refused(test_data):
    pairs = binary()
    with pytest.raises(InputError, match=f"test_data = '{type(test_data).__name__}': a tensor of inputs and one of"):
        Task(nn.Linear(4, 1), F.mse_loss, [(pairs.inputs, pairs.targets)], test_data)


def test_a_best_rate_inside_the_sweep_has_no_note():
    def planned(algorithm, **chosen):
        return SimpleNamespace(spec=SimpleNamespace(algorithm=SimpleNamespace(label=algorithm)), chosen=chosen)

    plans = [planned("FedSUM", eta_l=rate, batch_size=8) for rate in (0.1, 0.3, 1.0)] + [planned("FedAvg", eta_l=9.0)]
    for rate, notes in ((0.1, 1), (0.3, 0), (1.0, 1)):
        best = SimpleNamespace(algorithm="FedSUM", settings={"eta_l": rate, "batch_size": 8})
        assert len(at_the_edge(plans, best)) == notes


def test_a_run_that_diverges_does_not_call_the_users_metrics():
    draw = torch.Generator().manual_seed(1)
    data = (torch.randn(40, 4, generator=draw), torch.arange(40) % 2)
    metric = Metric(lambda outputs, targets: roc_auc_score(targets, outputs[:, 1]), "higher", on=("test", "train"))
    with_metric, without = (
        Task(nn.Linear(4, 2), F.cross_entropy, [data, data], data, metrics=metrics) for metrics in ({"auc": metric}, {})
    )
    options = {"rounds": 20, "local_steps": 5, "eta_l": 1e38}
    with pytest.warns(UserWarning, match="FedAvg diverged.*scale the inputs; `fedsum delays` with --task"):
        history = simulate(with_metric, FedAvg(), Uniform(2, 1), **options)
    with pytest.warns(UserWarning, match="FedAvg diverged"):
        assert simulate(without, FedAvg(), Uniform(2, 1), **options).diverged == history.diverged
    last = history.metrics.iloc[-1]
    assert np.isnan(last["test_auc"])
    assert np.isnan(last["train_auc"])
    assert 0 <= history.metrics["test_auc"].iloc[0] <= 1


def test_a_metric_may_read_masked_classes():
    mask = torch.tensor([0.0, 0.0, -torch.inf])
    data = (torch.zeros(4, 3), torch.tensor([0, 1, 0, 1]))
    metrics = {"lowest": Metric(lambda outputs, targets: outputs.min(), better="higher")}
    task = Task(nn.Linear(3, 3), lambda o, t: F.cross_entropy(o + mask, t), [data], data, metrics=metrics)
    assert np.isfinite(task.evaluate(task.init(0))["test_lowest"])


def test_a_search_skips_a_rate_that_diverges(tmp_path, swept):
    (tmp_path / "one.toml").write_text(SWEEP.partition("[sweep]")[0].replace("eta_l = 0.3", "eta_l = 6e37"))
    code, _, error = swept("tune", "one.toml", "--by", "test_auc", "--span", "1", "--folder", "tuned")
    assert code == 0, error
    states = {run.folder.name: run.state for run in read_runs(tmp_path / "tuned")}
    assert set(states.values()) == {"diverged", "finished"}, states


@pytest.mark.filterwarnings("default")
def test_an_auc_of_a_single_class_is_explained_once():
    data = [(torch.randn(8, 2), torch.tensor([0, 1] * 4)) for _ in range(3)]
    auc = Metric(lambda outputs, targets: roc_auc_score(targets, outputs[:, 1]), better="higher", on=("test", "train"))
    test = torch.randn(5, 2), torch.ones(5, dtype=torch.int64)
    task = Task(lambda: nn.Linear(2, 2), F.cross_entropy, data, test, metrics={"auc": auc})
    with pytest.warns() as notes:
        history = simulate(task, FedAvg(), Uniform(3, 2), rounds=4, local_steps=1, eta_l=0.1, eval_every=1)
    assert [str(note.message) for note in notes] == [
        "test_auc is NaN in every evaluation: all 5 targets of the test set are 1; give the set samples of every class,"
        " or use another metric"
    ]
    assert all(np.isnan(row["test_auc"]) and 0 <= row["train_auc"] <= 1 for row in history.rows)


def test_a_metric_that_is_defined_for_a_single_class_keeps_its_warnings():
    def warned(outputs, targets):
        warnings.warn("ill-defined", stacklevel=1)
        return 0.5

    data = [(torch.randn(8, 2), torch.zeros(8, dtype=torch.int64))]
    metrics = {"own": Metric(warned, better="higher", on="train")}
    task = Task(lambda: nn.Linear(2, 2), F.cross_entropy, data, metrics=metrics)
    with pytest.warns(UserWarning, match="^ill-defined$"):
        assert task.evaluate(task.init(0))["train_own"] == 0.5
