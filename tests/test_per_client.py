"""Who is served: every client's loss and accuracy, against a loop over clients."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fedsum
from fedsum import Explicit, FedAvg, FedAWE, FedSUM, InputError, Run, Uniform, simulate
from fedsum.runs import read_runs
from fedsum.tasks import ClientData, Partition, Quadratic, Task, network_of, vision
from fedsum.tasks.scoring import has_sample_losses
from fedsum.training.served import served_metrics

OPTIONS = {"local_steps": 2, "eta_l": 0.1, "batch_size": 8, "eval_every": 4, "per_client": True}
N = 12


def data(n=N, classes=3, seed=0):
    draw = torch.Generator().manual_seed(seed)
    sizes = [5 + 3 * i for i in range(n)]
    inputs = [torch.randn(size, 4, generator=draw) for size in sizes]
    targets = [torch.randint(classes, (size,), generator=draw) % (1 + i % classes) for i, size in enumerate(sizes)]
    return list(zip(inputs, targets, strict=True))


def common_test():
    draw = torch.Generator().manual_seed(9)
    return torch.randn(200, 4, generator=draw), torch.randint(3, (200,), generator=draw)


def linear():
    return nn.Linear(4, 3)


def alone(task, x, inputs, targets):
    """Loss and accuracy of one client, computed by itself."""
    with torch.no_grad():
        outputs = task.model(x)(inputs)
    return float(task.loss(outputs, targets)), float((outputs.argmax(1) == targets).double().mean())


WEIGHTED = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.2]))


def unmapped(outputs, targets):
    """A loss that vmap cannot compute."""
    return F.cross_entropy(outputs, targets) * (1.0 if float(outputs.sum()) < 1e9 else 2.0)


@pytest.mark.parametrize("loss", [F.cross_entropy, WEIGHTED, unmapped], ids=["plain", "class weights", "not mapped"])
@pytest.mark.parametrize("with_test_set", [True, False])
def test_held_out_data_of_each_client_against_a_loop(loss, with_test_set, monkeypatch):
    monkeypatch.setitem(fedsum.tasks.samples._EVALUATION_BYTES, "cpu", 16 * 4 * 4 * 1000)
    held_out = data(seed=5)
    task = Task(linear, loss, data(), common_test() if with_test_set else None, client_test_data=held_out)
    x = task.init(3) * 3
    row, scores = task.evaluate_clients(x)
    expected = np.array([alone(task, x, *pair) for pair in held_out]).T
    assert np.abs(scores["loss"] - expected[0]).max() < 1e-6
    assert np.abs(scores["accuracy"] - expected[1]).max() < 1e-6
    assert row == task.evaluate(x)
    if not with_test_set:  # the test set is all clients' data
        assert row["test_accuracy"] == pytest.approx(np.average(expected[1], weights=[len(t) for _, t in held_out]))
    network = network_of(task)  # as an engine with its own kernels evaluates
    by_network = network.evaluate_clients(x, network.outputs)[1]
    assert all(np.array_equal(by_network[name], scores[name]) for name in scores)


def test_chunks_do_not_change_the_scores(monkeypatch):
    task = Task(linear, F.cross_entropy, data(), client_test_data=data(seed=5))
    whole = task.evaluate_clients(task.init(0))[1]
    monkeypatch.setitem(fedsum.tasks.samples._EVALUATION_BYTES, "cpu", 16 * 4 * 4 * 7)  # seven samples at a time
    pieces = task.evaluate_clients(task.init(0))[1]
    assert all(np.abs(whole[name] - pieces[name]).max() < 1e-6 for name in whole)


def test_losses_of_samples_are_used_only_where_they_are_the_mean():
    draw = torch.Generator().manual_seed(0)
    outputs, targets = torch.randn(16, 3, generator=draw), torch.randint(3, (16,), generator=draw)
    assert has_sample_losses(F.cross_entropy, outputs, targets)
    assert not has_sample_losses(WEIGHTED, outputs, targets)
    assert not has_sample_losses(unmapped, outputs, targets)


def test_the_test_set_weighted_by_labels_against_a_loop():
    task = Task(linear, F.cross_entropy, data(), common_test())
    x = task.init(3) * 3
    row, scores = task.evaluate_clients(x)
    assert row == task.evaluate(x)
    inputs, targets = common_test()
    by_label = [alone(task, x, inputs[targets == label], targets[targets == label]) for label in range(3)]
    for client, (_, own) in enumerate(data()):
        expected = np.mean([by_label[label] for label in own.tolist()], axis=0)
        assert scores["loss"][client] == pytest.approx(expected[0], abs=1e-6)
        assert scores["accuracy"][client] == pytest.approx(expected[1], abs=1e-6)


def test_binary_targets_and_labels_that_the_test_set_lacks():
    draw = torch.Generator().manual_seed(0)
    pairs = [(torch.randn(9, 4, generator=draw), torch.full((9, 1), float(i % 2))) for i in range(4)]
    test = (torch.randn(30, 4, generator=draw), torch.randint(2, (30, 1), generator=draw).float())
    loss = F.binary_cross_entropy_with_logits
    _, scores = Task(nn.Linear(4, 1), loss, pairs, test).evaluate_clients(torch.randn(5, generator=draw))
    assert scores["accuracy"][0] == scores["accuracy"][2] != scores["accuracy"][1]
    inputs, targets = common_test()
    few = targets != 2
    lacking = Task(linear, F.cross_entropy, data(), (inputs[few], targets[few]))
    assert np.isfinite(lacking.evaluate_clients(lacking.init(0))[1]["loss"]).all()
    only = [(torch.randn(3, 4), torch.tensor([0, 1, 0])), (torch.randn(2, 4), torch.tensor([2, 2]))]
    with pytest.raises(InputError, match="per_client for client = 1: no sample of the test set has one of its labels"):
        Task(linear, F.cross_entropy, only, (inputs[few], targets[few])).evaluate_clients(torch.zeros(15))


def test_worst_tenth_and_gap():
    accuracy = np.linspace(0.1, 1.0, 20)
    counts = np.arange(20)
    row = served_metrics({"accuracy": accuracy, "loss": 1 - accuracy}, counts)
    assert row["client_accuracy_mean"] == pytest.approx(accuracy.mean())
    assert row["client_accuracy_worst"] == pytest.approx(accuracy[:2].mean())
    assert row["client_loss_worst"] == pytest.approx(1 - accuracy[:2].mean())
    # Positive: the rarest tenth is served worse, by accuracy and by loss.
    assert row["client_accuracy_gap"] == pytest.approx(accuracy[-2:].mean() - accuracy[:2].mean())
    assert row["client_loss_gap"] == pytest.approx(row["client_accuracy_gap"])
    tied = served_metrics({"accuracy": accuracy}, np.zeros(20, dtype=int))
    assert tied["client_accuracy_gap"] == 0.0  # before the first round all are alike
    one = served_metrics({"accuracy": accuracy[:3]}, np.array([1, 1, 4]))
    assert one["client_accuracy_worst"] == accuracy[0]
    assert one["client_accuracy_gap"] == pytest.approx(accuracy[2] - accuracy[:2].mean())


def test_a_run_logs_them_and_keeps_the_table(tmp_path):
    task, schedule = (
        Task(linear, F.cross_entropy, dict(zip("abcdefghijkl", data(), strict=True)), common_test()),
        Uniform(N, 3),
    )
    history = simulate(task, FedSUM(), schedule, rounds=9, **OPTIONS, folder=tmp_path / "run")
    table, last = history.per_client, history.rows[-1]
    assert list(table.columns) == ["client", "rounds", "loss", "accuracy"]
    assert (table["client"].tolist(), table["rounds"].tolist()) == (
        list("abcdefghijkl"),
        history.delays.counts.tolist(),
    )
    assert last["client_accuracy_mean"] == pytest.approx(table["accuracy"].mean())
    assert last["client_loss_worst"] == pytest.approx(table["loss"].max())
    scores = task.evaluate_clients(history.x)[1]
    assert np.array_equal(table["loss"], scores["loss"])
    plain = simulate(task, FedSUM(), schedule, rounds=9, **OPTIONS | {"per_client": False})
    assert torch.equal(plain.x, history.x)
    assert plain.per_client is None
    assert all(row["test_loss"] == other["test_loss"] for row, other in zip(plain.rows, history.rows, strict=True))
    again = simulate(task, FedSUM(), schedule, rounds=9, **OPTIONS, folder=tmp_path / "run")  # nothing left to do
    assert again.per_client.equals(table)
    read = Run.read(tmp_path / "run").clients
    assert np.allclose(read["loss"], table["loss"], rtol=1e-12)
    fedsum.pack(tmp_path / "run", tmp_path / "run.parquet")
    (packed,) = read_runs(tmp_path / "run.parquet")
    assert np.allclose(packed.clients["accuracy"], table["accuracy"], rtol=1e-5)
    assert packed.clients["client"].tolist() == list("abcdefghijkl")
    with pytest.raises(InputError, match=r"per_client = False: the run in .* has True"):
        simulate(task, FedSUM(), schedule, rounds=9, **OPTIONS | {"per_client": False}, folder=tmp_path / "run")


@pytest.mark.parametrize("names", [["001", "002", "NA"], ["a", "None", "nan"], ["1.0", "2", ""], ["2", "1", "0"]])
def test_the_names_of_clients_are_read_as_they_were_given(names, tmp_path):
    pairs = dict(zip(names, data(3), strict=True))
    task = Task(linear, F.cross_entropy, pairs, client_test_data=pairs)
    history = simulate(task, FedAvg(), Uniform(3, 2), rounds=1, folder=tmp_path / "run", **OPTIONS)
    assert history.per_client["client"].tolist() == names
    assert Run.read(tmp_path / "run").clients["client"].tolist() == names
    packed = fedsum.pack(tmp_path / "run")
    assert read_runs(packed)[0].clients["client"].tolist() == names


@pytest.mark.parametrize("loss", [F.cross_entropy, unmapped], ids=["mapped", "not mapped"])
def test_held_out_samples_of_no_client_count_for_no_client(loss):
    pairs = data(3)
    inputs, targets = (torch.cat([pair[side] for pair in pairs]) for side in (0, 1))
    parts = Partition([[0, 1, 2], [5, 6], [9, 10, 11]])
    task = Task(linear, loss, pairs, client_test_data=ClientData(inputs, targets, parts))
    x = task.init(3)
    _, scores = task.evaluate_clients(x)
    expected = [alone(task, x, inputs[part], targets[part]) for part in parts.parts]
    assert np.allclose(np.stack([scores["loss"], scores["accuracy"]], 1), expected)


def test_a_stopped_run_ends_with_the_same_bits(tmp_path):
    task, schedule = Task(linear, F.cross_entropy, data(), common_test()), Uniform(N, 3)

    class Halt(fedsum.Observer):
        def round_done(self, run, done):
            if done.round == 6:
                raise RuntimeError("halted")

    options = OPTIONS | {"rounds": 9, "checkpoint_rounds": 1, "folder": tmp_path / "run"}
    with pytest.raises(RuntimeError, match="halted"):
        simulate(task, FedSUM(), schedule, observers=[Halt()], **options)
    resumed = simulate(task, FedSUM(), schedule, **options)
    whole = simulate(task, FedSUM(), schedule, rounds=9, **OPTIONS)
    untimed = [{k: v for k, v in row.items() if "seconds" not in k} for row in resumed.rows]
    assert untimed == [{k: v for k, v in row.items() if "seconds" not in k} for row in whole.rows]
    assert resumed.per_client.equals(whole.per_client)
    assert torch.equal(resumed.x, whole.x)


def test_other_tasks_and_models():
    quadratic = Quadratic.random(6, 3)
    history = simulate(quadratic, FedAvg(), Uniform(6, 2), rounds=4, **OPTIONS)
    assert list(history.per_client.columns) == ["client", "rounds", "loss"]
    assert history.rows[-1]["client_loss_mean"] == pytest.approx(history.rows[-1]["train_loss"], rel=1e-5)
    digits = vision("digits", clients=8, alpha=1.0)
    echo = simulate(digits, FedAWE(), Explicit(8, [[0, 1]] * 3), rounds=3, **OPTIONS)
    mean = sum(echo.clients[i]["x"] if i in (0, 1) else digits.init(0) for i in range(8)) / 8
    assert np.allclose(echo.per_client["loss"], digits.evaluate_clients(mean)[1]["loss"], atol=1e-5)

    class Own(Quadratic):
        evaluate_clients = None

    with pytest.raises(InputError, match="per_client = True: a task with the method evaluate_clients, which Own"):
        simulate(Own([[1.0]], [[0.0]]), FedAvg(), Uniform(1, 1), rounds=1, **OPTIONS)

    class Scored(Task):
        def evaluate(self, x):
            return {"train_loss": 1.0, "score": float(x.sum())}

    scored = Scored(linear, F.cross_entropy, data(), common_test())
    row, scores = scored.evaluate_clients(scored.init(0))
    assert (list(row), len(scores["accuracy"])) == (["train_loss", "score"], N)


def test_what_cannot_be_evaluated_is_refused_before_the_first_round():
    task = Task(linear, F.cross_entropy, data())
    with pytest.raises(InputError, match="per_client = True: needs data to evaluate on"):
        simulate(task, FedAvg(), Uniform(N, 2), rounds=1, **OPTIONS)
    pairs = [(torch.randn(5, 2), torch.randn(5, 1)) for _ in range(3)]
    regression = Task(nn.Linear(2, 1), F.mse_loss, pairs, pairs[0])
    with pytest.raises(InputError, match="per_client = True: needs class labels, or each client's own data"):
        simulate(regression, FedAvg(), Uniform(3, 2), rounds=1, **OPTIONS)
    own = Task(nn.Linear(2, 1), F.mse_loss, pairs, client_test_data=pairs)
    history = simulate(own, FedAvg(), Uniform(3, 2), rounds=1, **OPTIONS)
    assert list(history.per_client.columns) == ["client", "rounds", "loss"]
    assert math.isfinite(history.rows[-1]["client_loss_gap"])
    with pytest.raises(InputError, match="client_test_data = '2 clients': as many as client_data, 3"):
        Task(nn.Linear(2, 1), F.mse_loss, pairs, client_test_data=pairs[:2])
    named, swapped = dict(zip("abc", pairs, strict=True)), dict(zip("cba", pairs, strict=True))
    aligned = Task(nn.Linear(2, 1), F.mse_loss, named, client_test_data=swapped)
    assert [part[0] for part in aligned.client_test.partition.parts] == [10, 5, 0]
    with pytest.raises(InputError, match="client_test_data of client = 'c'"):
        Task(nn.Linear(2, 1), F.mse_loss, named, client_test_data={"a": pairs[0], "b": pairs[1]})
