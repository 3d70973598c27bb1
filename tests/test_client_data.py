"""Clients' data in the forms that people have it in; errors name the client."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

import fedsum
from fedsum import InputError
from fedsum.flower import own_data
from fedsum.tasks import ClientData, Partition, Task, by_client, leaf

PAIRS = [(torch.arange(8.0).reshape(4, 2) + 10 * i, torch.tensor([0, 1, 1, 0])) for i in range(3)]


class Own(Dataset):
    """A torch Dataset that makes its samples one by one."""

    def __init__(self, inputs, targets):
        self.inputs, self.targets = inputs, targets

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, i):
        return self.inputs[i].numpy(), int(self.targets[i])


class HuggingFace:
    """What fedsum uses of a Hugging Face data set."""

    def __init__(self, **columns):
        self.columns, self.column_names = columns, list(columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name):
        return self.columns[name]


def task(data, **options):
    return Task(lambda: nn.Linear(2, 2), F.cross_entropy, data, **options)


FORMS = {
    "pairs": PAIRS,
    "arrays": [(inputs.numpy(), targets.numpy()) for inputs, targets in PAIRS],
    "dict": dict(zip(("ann", "bob", "cy"), PAIRS, strict=True)),
    "tensor data sets": [TensorDataset(*pair) for pair in PAIRS],
    "data sets": [Own(*pair) for pair in PAIRS],
    "hugging face": [HuggingFace(label=targets.tolist(), x=inputs.tolist()) for inputs, targets in PAIRS],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_same_task(form):
    plain, made = task(PAIRS), task(FORMS[form])
    assert torch.equal(plain.inputs, made.inputs)
    assert torch.equal(plain.targets, made.targets)
    assert [part.tolist() for part in made.partition.parts] == [part.tolist() for part in plain.partition.parts]
    assert made.client_names == (("ann", "bob", "cy") if form == "dict" else None)


def test_a_table_with_a_column_of_clients():
    frame = pd.DataFrame(
        {
            "hospital": ["b", "a", "b", "a"],
            "age": [1, 2, 3, 4],
            "dose": [0.5, 1.5, 2.5, 3.5],
            "y": [True, False, True, True],
        }
    )
    data = by_client(frame, client="hospital", target="y")
    assert data.names == ("a", "b")
    assert [part.tolist() for part in data.partition.parts] == [[1, 3], [0, 2]]
    assert (data.inputs.dtype, data.targets.dtype) == (torch.float32, torch.int64)
    assert data.inputs.tolist() == [[1, 0.5], [2, 1.5], [3, 2.5], [4, 3.5]]
    assert by_client(frame, client="hospital", target="dose", features=["age"]).targets.dtype == torch.float32
    history = fedsum.simulate(task(data), fedsum.FedSUM(), fedsum.Uniform(2, 1), rounds=2, local_steps=1, eta_l=0.1)
    assert history.task.client_names == ("a", "b")
    for change, message in (
        ({"dose": [0.5, np.nan, 2.5, 3.5]}, "column 'dose', row = 1: no value, for client 'a'; fill it or"),
        ({"hospital": ["b", None, "b", "a"]}, "column 'hospital', row = 1: no client; drop the row"),
        ({"age": ["young"] * 4}, "column 'age' = .*: a column of numbers; encode categories first, as pandas.get_dum"),
        ({"y": ["yes", "no", "yes", "yes"]}, "target 'y' = .*: a column of numbers or booleans; number the classes"),
    ):
        with pytest.raises(InputError, match=message):
            by_client(frame.assign(**change), client="hospital", target="y")
    with pytest.raises(InputError, match="client = 'hopsital': did you mean 'hospital'"):
        by_client(frame, client="hopsital", target="y")
    with pytest.raises(InputError, match="frame of shape = "):
        by_client(frame[["hospital", "y"]], client="hospital", target="y")


def test_leafs_folders(tmp_path):
    for number, users in enumerate((("u1", "u2"), ("u3",))):
        content = {user: {"x": [[1, 2], [3, 4]], "y": [0, 1]} for user in users}
        text = json.dumps({"users": list(users), "num_samples": [2] * len(users), "user_data": content})
        (tmp_path / f"part{number}.json").write_text(text)
    data = leaf(tmp_path)
    assert (data.names, data.partition.sizes.tolist()) == (("u1", "u2", "u3"), [2, 2, 2])
    assert task(data, client_test_data=data).n == 3
    with pytest.raises(InputError, match="a folder with LEAF's"):
        leaf(tmp_path / "none")
    (tmp_path / "part2.json").write_text('{"user_data": {"u9": {"x": ["to be"], "y": [0]}}}')
    with pytest.raises(InputError, match=r"user 'u9' of .*numbers; encode text first"):
        leaf(tmp_path)
    (tmp_path / "part2.json").write_text('{"user_data": {"u1": {"x": [[1, 2]], "y": [0]}}}')
    with pytest.raises(InputError, match=r"user of .*part2.json = 'u1': given twice"):
        leaf(tmp_path)
    (tmp_path / "part2.json").write_text("{}")
    with pytest.raises(InputError, match=r"part2.json.*LEAF's JSON"):
        leaf(tmp_path)


def spoiled(value, sample=2):
    inputs = PAIRS[1][0].clone()
    inputs[sample, 1] = value
    return inputs, PAIRS[1][1]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"ann": PAIRS[0], "bob": spoiled(np.nan)},
            r"client_data\['bob'\], inputs of sample = 2: finite numbers; it has NaN",
        ),
        ([PAIRS[0], spoiled(np.inf)], r"client_data\[1\], inputs of sample = 2: finite"),
        ({"ann": PAIRS[0], "bob": (PAIRS[1][0][:3], PAIRS[1][1])}, r"client_data\['bob'\] = '3 inputs, 4 targets'"),
        ({"ann": PAIRS[0], "bob": (torch.zeros(0, 2), torch.zeros(0))}, r"client_data\['bob'\] = 'no samples'"),
        ([PAIRS[0], Own(torch.zeros(0, 2), torch.zeros(0))], r"client_data\[1\] = 'no samples'"),
        (
            {"ann": PAIRS[0], "bob": (torch.zeros(4, 3), PAIRS[1][1])},
            r"client_data\['bob'\] with samples of shape = \(3,\): \(2,\)",
        ),
        (
            [PAIRS[0], HuggingFace(a=[1], b=[2], label=[0])],
            r"client_data\[1\] with columns = 'a, b, label': two columns",
        ),
        ([PAIRS[0], 7], r"client_data\[1\] = 'int': a pair"),
        (
            [PAIRS[0], Own(*PAIRS[1]).inputs.numpy()],
            r"client_data\[1\] = 'ndarray': a data set whose samples are pairs",
        ),
        (
            [PAIRS[0], (PAIRS[1][0], torch.tensor([0.0, 1.0, np.nan, 0.0]))],
            r"client_data\[1\], targets of sample = 2: finite",
        ),
        (torch.zeros(3, 2), "client_data = 'Tensor': one pair"),
        ([(["a"], ["b"])], r"client_data\[0\] = 'tuple': inputs and targets as arrays of numbers"),
        ({}, "client_data = .*at least one client"),
    ],
)
def test_errors_name_the_client(data, message):
    with pytest.raises(InputError, match=message):
        task(data)


def test_nan_is_found_before_the_first_round():
    with pytest.raises(InputError, match="test_data, inputs of sample = 2"):
        task(PAIRS, test_data=spoiled(np.nan))
    inputs = torch.cat([pair[0] for pair in PAIRS])
    inputs[5, 0] = np.nan
    parts = Partition([[0, 1], [5, 6]])
    with pytest.raises(InputError, match=r"client_data\['y'\], inputs of sample = 0"):
        task(ClientData(inputs, torch.zeros(12, dtype=torch.int64), parts, ("x", "y")))
    made = task(PAIRS, prepare=lambda values, dtype: values.to(dtype) * np.nan)
    with pytest.raises(InputError, match="train_loss = nan: a finite loss of the initial model"):
        fedsum.simulate(made, fedsum.FedAvg(), fedsum.Uniform(3, 1), rounds=3, local_steps=1, eta_l=0.1)


def test_samples_and_names_of_client_data_are_checked():
    inputs, targets = torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64)
    for data, message in (
        (ClientData(inputs, targets[:3], Partition([[0], [1]])), "client_data with targets = 3: as many as inputs, 4"),
        (
            ClientData(inputs, targets, Partition([[0], [4]])),
            "client_data.partition with sample = 4: samples from 0 to 3",
        ),
        (
            ClientData(inputs, targets, Partition([[0], [1]]), ("a",)),
            "client_data.names = '1 names': one per client, 2",
        ),
    ):
        with pytest.raises(InputError, match=message):
            task(data)
    unlabelled = Task(nn.Linear(2, 2), nn.CrossEntropyLoss(ignore_index=-1), [(inputs, targets - 1)])
    assert unlabelled.partition.labels is None  # -1 is a target, but no label to count


def test_held_out_data_has_the_same_clients():
    own = dict(zip(("ann", "bob"), PAIRS, strict=False))
    made = task(own, client_test_data=dict(reversed(own.items())))
    assert [held.tolist() for held in made.client_test.partition.parts] == [[4, 5, 6, 7], [0, 1, 2, 3]]
    for other, message in (
        ({"ann": PAIRS[0]}, "client_test_data of client = 'bob': data of the same clients"),
        (own | {"cy": PAIRS[2]}, "client_data of client = 'cy': data of the same clients"),
    ):
        with pytest.raises(InputError, match=message):
            task(own, client_test_data=other)


def test_a_client_alone_does_not_know_the_sample_weights():
    """own_data has one sample for every other client: their shares of the samples would be wrong."""
    own = own_data(1, 3, torch.ones(50, 2), torch.zeros(50, dtype=torch.int64))
    with pytest.raises(InputError, match="weights = 'samples': numbers that sum to 1, one per client"):
        Task(lambda: nn.Linear(2, 2), nn.functional.cross_entropy, own, weights="samples")
    weighted = Task(lambda: nn.Linear(2, 2), nn.functional.cross_entropy, own, weights=[0.2, 0.5, 0.3])
    assert weighted.scale is not None
    assert weighted.scale.tolist() == pytest.approx([0.6, 1.5, 0.9])


def test_test_data_may_be_a_clientdata():
    frame = pd.DataFrame({"h": list("abab"), "u": [1.0, 2, 3, 4], "v": [0.0, 1, 0, 1], "y": [0, 1, 1, 0]})
    data = by_client(frame, client="h", target="y")
    inputs, targets = task(PAIRS, test_data=data).test_data
    assert torch.equal(inputs, data.inputs)
    assert torch.equal(targets, data.targets)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda frame: task(frame), "client_data = 'DataFrame': .*by_client"),
        (lambda frame: task(PAIRS, test_data=frame), "test_data = 'DataFrame': .*by_client"),
        (lambda frame: by_client("rows.csv", client="h", target="y"), "frame = 'rows.csv': .*pandas.read_csv"),
    ],
)
def test_a_table_in_the_wrong_place_is_refused_with_the_function_that_reads_it(make, message):
    with pytest.raises(InputError, match=message):
        make(pd.DataFrame({"h": ["a"], "u": [1.0], "y": [0]}))


@pytest.mark.parametrize(
    ("made", "note"),
    [
        (
            lambda: Task(nn.Embedding(3, 2), F.cross_entropy, PAIRS),
            "in the model or the loss: inputs of shape [12, 2], targets of shape [12], int64",
        ),
        (
            lambda: Task(nn.Linear(2, 3), F.binary_cross_entropy_with_logits, PAIRS),
            "in the model or the loss: inputs of shape [12, 2], targets of shape [12], int64",
        ),
        (
            lambda: Task(
                nn.Linear(2, 2),
                F.cross_entropy,
                PAIRS,
                PAIRS[0],
                metrics={"auc": fedsum.Metric(lambda outputs, targets: [][0], better="higher")},
            ),
            "in metrics['auc']: outputs of shape [4, 2], targets of shape [4], int64",
        ),
    ],
)
def test_an_error_in_the_users_own_function_comes_with_the_shapes(made, note):
    with pytest.raises((RuntimeError, ValueError, IndexError)) as caught:
        fedsum.simulate(made(), fedsum.FedAvg(), fedsum.Uniform(3, 1), rounds=1, local_steps=1, eta_l=0.1)
    assert caught.value.__notes__ == [note]


def labelled(*labels):
    return [(torch.ones(len(labels), 2), torch.tensor(labels))] * 3


@pytest.mark.parametrize(
    ("model", "loss", "data", "message"),
    [
        (
            nn.Linear(2, 1),
            F.cross_entropy,
            labelled(0, 1),
            "model = '1 output': the targets have the labels 0 to 1; give it 2 outputs",
        ),
        (
            nn.Linear(2, 2),
            F.cross_entropy,
            labelled(0, 1, 4),
            "model = '2 outputs': the targets have the labels 0 to 4; give it 5 outputs",
        ),
        (
            nn.Linear(2, 2),
            nn.CrossEntropyLoss(),
            labelled(1, 2, 1),
            "targets = 'labels 1 to 2': the loss takes labels from 0; use targets - 1",
        ),
        (
            nn.Linear(2, 2),
            F.cross_entropy,
            labelled(-1, 1),
            "targets = 'labels -1 to 1': the loss takes labels from 0; number them from 0",
        ),
        (
            nn.Linear(2, 2),
            F.cross_entropy,
            labelled(0.0, 1.0),
            "targets = 'float32': this loss takes labels of dtype int64; use targets.long()",
        ),
        (
            nn.Linear(3, 2),
            F.cross_entropy,
            PAIRS,
            "model.in_features = 3: the layer gets inputs of shape [2]; use 2, or change the inputs",
        ),
        (
            nn.Sequential(nn.Linear(4, 2)),
            F.cross_entropy,
            [(torch.ones(3, 2, 2), torch.tensor([0, 1, 0]))],
            "model.0.in_features = 4: the layer gets inputs of shape [2, 2]; put nn.Flatten() before it",
        ),
        (
            nn.Linear(2, 1),
            nn.BCEWithLogitsLoss(),
            labelled(0.0, 1.0),
            "targets of shape = [6]: the outputs have the shape [6, 1]; in the loss, use outputs[:, 0] and targets",
        ),
        (
            nn.Linear(2, 1),
            F.binary_cross_entropy_with_logits,
            PAIRS,
            "targets of shape = [12]: the outputs have the shape [12, 1]; in the loss, use outputs[:, 0] and"
            " targets.float()",
        ),
    ],
)
def test_a_model_a_loss_and_targets_that_do_not_fit_are_refused(model, loss, data, message):
    with pytest.raises(InputError) as caught:  # and without a warning that a model with one output has no accuracy
        Task(model, loss, data, data[0])
    assert str(caught.value) == message


def test_labels_that_only_the_test_data_have_are_refused():
    with pytest.raises(InputError, match="model = '2 outputs': the targets have the labels 0 to 2; give it 3 outputs"):
        task(PAIRS, test_data=(torch.ones(3, 2), torch.tensor([0, 1, 2])))


def test_targets_that_the_loss_takes_are_not_refused():
    ignored = labelled(-100, 1, 0)
    assert task(ignored).evaluate(task(ignored).init(0))["train_loss"] > 0

    def own(outputs, targets):
        return F.cross_entropy(outputs, targets - 1)

    Task(nn.Linear(2, 2), own, labelled(1, 2))
    Task(nn.Linear(2, 2), lambda outputs, targets: outputs.topk(3, 0).values.mean(), PAIRS)  # fails on two samples

    class Halves(Task):
        def _prepared(self, inputs):
            return super()._prepared(inputs)[..., :1]

    Halves(nn.Linear(1, 2), F.cross_entropy, PAIRS)


def test_the_failure_of_a_run_in_a_sweep_says_which_labels_do_not_fit(tmp_path, fedsum):
    (tmp_path / "own.py").write_text(
        "import torch\nfrom fedsum.tasks import Task\n"
        "def make(outputs=1):\n"
        "    data = [(torch.ones(4, 2), torch.tensor([0, 1, 0, 1]))] * 3\n"
        "    return Task(lambda: torch.nn.Linear(2, outputs), torch.nn.functional.cross_entropy, data, data[0])\n"
    )
    (tmp_path / "sweep.toml").write_text(
        'rounds = 2\nlocal_steps = 1\neta_l = 0.1\nalgorithm = "FedAvg"\nschedule = {name = "uniform", size = 2}\n'
        '[task]\nname = "own.py:make"\n[sweep]\n"task.outputs" = [2, 1]\n'
    )
    _, out, error = fedsum("run", "sweep.toml")
    assert "model = '1 output': the targets have the labels 0 to 1; give it 2 outputs" in " ".join(
        (out + error).split()
    )


def test_columns_in_another_order_are_refused():
    frame = pd.DataFrame({"h": list("abab"), "u": [1.0, 2, 3, 4], "v": [0.0, 1, 0, 1], "y": [0, 1, 1, 0]})

    def read(*columns):
        return by_client(frame[["h", *columns, "y"]], client="h", target="y")

    data = read("u", "v")
    assert data.features == ("u", "v")
    one = by_client(frame, client="h", target="y", features=["u"])
    task(data, test_data=read("u", "v"), client_test_data=read("u", "v"))
    task(data, test_data=(data.inputs, data.targets))
    way_out = "as in client_data; give by_client the same features=[...] for both tables"
    for options, message in (
        ({"test_data": read("v", "u")}, f"test_data.features[0] = 'v': 'u', {way_out}"),
        ({"client_test_data": read("v", "u")}, f"client_test_data.features[0] = 'v': 'u', {way_out}"),
        ({"test_data": one}, f"test_data.features[1] = None: 'v', {way_out}"),
    ):
        with pytest.raises(InputError) as caught:
            task(data, **options)
        assert str(caught.value) == message
    with pytest.raises(InputError, match=r"test_data.features\[1\] = 'v': no such column, as in client_data"):
        Task(nn.Linear(1, 2), F.cross_entropy, one, data)


def columns_task(columns, **options):
    """A task on a table with these columns, of two clients."""
    frame = pd.DataFrame({"client": [0, 1] * 50, **columns, "y": [0, 0, 1, 1] * 25})
    data = by_client(frame, client="client", target="y")
    return Task(lambda: nn.Linear(len(columns), 2), F.cross_entropy, data, **options)


AGE, INCOME = np.linspace(0, 100, 100), np.linspace(0, 200_000, 100)
SCALED = np.linspace(-1.7, 1.7, 100)


@pytest.mark.parametrize(
    ("columns", "sizes"),
    [
        ({"age": AGE, "income": INCOME}, r"column 'income' 1\.2e\+05, column 'age' 58"),
        ({f"x{i}": AGE for i in range(5)}, r"column 'x0' 58, column 'x1' 58, column 'x2' 58 and 2 more"),
        ({"age": AGE}, r"column 'age' 58"),
        ({"share": SCALED * 1e-4, "dose": SCALED}, r"column 'share' 9\.9e-05, column 'dose' 0\.99"),
    ],
)
def test_unscaled_columns_are_named_with_the_way_out(columns, sizes):
    with pytest.warns(UserWarning, match=rf"^unscaled inputs \(root mean square: {sizes}\): .*divide by") as notes:
        columns_task(columns)
    assert len(notes) == 1
    assert notes[0].filename == __file__


def test_inputs_that_need_no_scaling_give_no_warning():
    rare, zeros = np.eye(100)[0], np.zeros(100)
    columns_task({"age": (AGE - 50) / 29, "rare": rare, "zeros": zeros, "pixel": np.arange(100) % 17})
    columns_task({"zeros": zeros})
    columns_task({"age": AGE, "income": INCOME}, prepare=lambda x, dtype: (x / x.new_tensor([1e2, 1e5])).to(dtype))
    images = [(255 * torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 0, 1]))]
    Task(lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 2)), F.cross_entropy, images)
