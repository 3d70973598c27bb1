"""Image sets: decoded exactly, cached atomically, and refused with one line if a file is wrong."""

import dataclasses
import hashlib
import io
import os
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors
import safetensors.torch
import torch
from PIL import Image

from fedsum import InputError
from fedsum.tasks import data, set_files
from fedsum.tasks.partition import dirichlet

ROWS = {"train": 12, "test": 5}
REAL = os.environ.get("FEDSUM_DATA", "")


def encode(pixels, format="PNG"):
    out = io.BytesIO()
    # WebP has no greyscale: the loader has to convert the three equal channels back to one.
    Image.fromarray(pixels).save(out, format, **({"lossless": True} if format == "WEBP" else {}))
    return {"bytes": out.getvalue(), "path": None}


def write_split(folder, source, split, *, format="PNG", change=None):
    """A small file of the set in the hub's layout; `change` may damage its columns first."""
    draw = np.random.default_rng([len(split), source.classes])
    rows, (channels, height, width) = ROWS[split], source.shape
    pixels = draw.integers(0, 256, (rows, height, width, channels), dtype=np.uint8)
    columns = {name: draw.integers(0, 10, rows).tolist() for name in (source.label, *source.columns)}
    images = [encode(p if channels == 3 else p[..., 0], format) for p in pixels]
    table = {source.image: images, **columns}
    if change:
        change(table)
    path = folder / source.repo / source.path(split)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(table), path)
    return pixels.transpose(0, 3, 1, 2), columns


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A folder in the hub's layout, an empty cache, and no network."""

    def offline(*args, **options):
        raise huggingface_hub.errors.LocalEntryNotFoundError("no\nnetwork")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    monkeypatch.setenv("FEDSUM_DATA", str(tmp_path / "hub"))
    monkeypatch.setenv("FEDSUM_CACHE", str(tmp_path / "cache"))
    for name, source in data.SOURCES.items():
        monkeypatch.setitem(data.SOURCES, name, dataclasses.replace(source, rows=ROWS))
    return tmp_path / "hub"


def write(hub, name, **options):
    return {split: write_split(hub, data.SOURCES[name], split, **options) for split in ROWS}


def refusal(name):
    """The error message for the set, which must be one line."""
    with pytest.raises(InputError) as caught:
        data.load(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("format", ["PNG", "WEBP"])
@pytest.mark.parametrize("name", data.SOURCES)
def test_what_is_loaded_is_what_was_encoded(hub, name, format, capsys):
    written = write(hub, name, format=format)
    images, source = data.load(name), data.SOURCES[name]
    assert (images.name, images.mean, images.std) == (name, source.mean, source.std)
    assert len(images.mean) == len(images.std) == source.shape[0]
    for split in ROWS:
        pixels, columns = written[split]
        inputs, targets = getattr(images, f"{split}_inputs"), getattr(images, f"{split}_targets")
        assert inputs.dtype == torch.uint8
        assert np.array_equal(inputs, pixels)
        assert targets.dtype == torch.int64
        assert targets.tolist() == columns[source.label]
    assert set(images.columns) == set(source.columns)
    for column, values in images.columns.items():
        assert values.tolist() == written["train"][1][column]
    assert capsys.readouterr() == ("", "")


def test_decoding_shows_its_progress_to_people(hub, monkeypatch, capsys):
    write(hub, "mnist")
    monkeypatch.setenv("FORCE_COLOR", "1")
    data.load("mnist")
    out, err = capsys.readouterr()
    assert out == ""
    assert "decoding ylecun/mnist" in err


def test_once_decoded_the_cache_is_enough(hub, tmp_path):
    write(hub, "cifar100")
    first = data.load("cifar100")
    hub.rename(tmp_path / "gone")
    second = data.load("cifar100")
    assert torch.equal(first.train_inputs, second.train_inputs)
    assert torch.equal(first.columns["coarse_label"], second.columns["coarse_label"])
    (cache,) = (tmp_path / "cache").iterdir()
    assert cache.name == "cifar100.safetensors"
    with (tmp_path / "plain").open("w") as plain:
        assert cache.stat().st_mode == os.stat(plain.fileno()).st_mode


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_the_cache_is_mapped_not_read(hub, tmp_path):
    write(hub, "mnist")
    images = data.load("mnist")
    places = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    mapped = [line[0].split("-") for line in places if line[-1] == str(tmp_path / "cache/mnist.safetensors")]
    assert any(int(low, 16) <= images.train_inputs.data_ptr() < int(high, 16) for low, high in mapped)


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"FEDSUM_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/fedsum"),
        ({"HOME": "/c"}, "/c/.cache/fedsum"),
    ],
)
def test_where_the_cache_is(environment, folder, monkeypatch):
    for name in ("FEDSUM_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert set_files.cache_folder() == Path(folder)


def test_without_a_local_copy_the_hub_is_asked(hub, tmp_path, monkeypatch):
    write(hub, "mnist")
    hub.rename(tmp_path / "elsewhere")
    asked = []

    def download(repo, path, *, repo_type):
        asked.append((repo, path, repo_type))
        return str(tmp_path / "elsewhere" / repo / path)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    for local in (str(hub), ""):
        monkeypatch.setenv("FEDSUM_DATA", local)
        assert len(data.load("mnist").train_targets) == ROWS["train"]
        (tmp_path / "cache/mnist.safetensors").unlink()
    files = [("ylecun/mnist", f"mnist/{split}-00000-of-00001.parquet", "dataset") for split in ROWS]
    assert asked == files * 2


@pytest.mark.parametrize("there", [[], ["train"]])
def test_offline_it_says_what_is_missing_and_how_to_get_it(hub, there, tmp_path):
    for split in there:
        write_split(hub, data.SOURCES["mnist"], split)
    missing = "test" if there else "train"
    assert refusal("mnist") == (
        f"data = 'ylecun/mnist/mnist/{missing}-00000-of-00001.parquet': not found, and the download from the hub "
        "failed (LocalEntryNotFoundError): set FEDSUM_DATA to a folder that contains the file, or run once with "
        "network access"
    )
    assert not (tmp_path / "cache").exists()


def test_any_changed_byte_of_the_cache_is_noticed(hub, tmp_path):
    write(hub, "mnist")
    data.load("mnist")
    cache = tmp_path / "cache/mnist.safetensors"
    whole = cache.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    places = [*range(header), *np.random.default_rng(0).integers(header, len(whole), 100).tolist()]
    for place in places:
        spoilt = bytearray(whole)
        spoilt[place] ^= 4
        cache.write_bytes(spoilt)
        message = refusal("mnist")
        assert str(cache) in message
        assert "delete the file" in message


def test_a_truncated_or_foreign_cache_is_refused(hub, tmp_path):
    write(hub, "mnist")
    write(hub, "svhn")
    data.load("mnist")
    data.load("svhn")
    cache = tmp_path / "cache/mnist.safetensors"
    whole = cache.read_bytes()
    for content in (b"", b"short", whole[:100], whole[:-1], whole + b"!", b"PK" + whole):
        cache.write_bytes(content)
        assert refusal("mnist").startswith(f"cache file {cache} = ")
    (tmp_path / "cache/svhn.safetensors").rename(cache)
    assert "('fedsum images 1', 'svhn')" in refusal("mnist")
    safetensors.torch.save_file({"weight": torch.zeros(3)}, cache)
    assert f"cache file {cache} = (None, None): a cache of mnist written by this version" in refusal("mnist")
    cache.unlink()
    cache.mkdir()
    assert "delete the file" in refusal("mnist")


def test_an_older_format_is_refused(hub, tmp_path, monkeypatch):
    write(hub, "mnist")
    data.load("mnist")
    monkeypatch.setattr(data, "_FORMAT", "fedsum images 2")
    assert "'fedsum images 1'" in refusal("mnist")


def test_a_cache_that_cannot_be_written_is_refused(hub, tmp_path, monkeypatch):
    write(hub, "mnist")
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDSUM_CACHE", str(tmp_path / "file/cache"))
    assert "FEDSUM_CACHE names another folder" in refusal("mnist")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), safetensors.SafetensorError("I/O error")])
def test_a_full_disk_leaves_nothing_behind(hub, tmp_path, monkeypatch, error):
    def full(tensors, path, metadata):
        Path(path).write_bytes(b"half of it")
        raise error

    write(hub, "mnist")
    monkeypatch.setattr(safetensors.torch, "save_file", full)
    assert str(error) in refusal("mnist")
    assert list((tmp_path / "cache").iterdir()) == []


def test_another_writer_in_the_middle_does_no_harm(hub, tmp_path, monkeypatch):
    save = safetensors.torch.save_file
    others = []

    def interrupted(tensors, path, metadata):
        monkeypatch.setattr(safetensors.torch, "save_file", save)
        others.append(data.load("mnist"))
        save(tensors, path, metadata)

    write(hub, "mnist")
    monkeypatch.setattr(safetensors.torch, "save_file", interrupted)
    images = data.load("mnist")
    assert torch.equal(images.train_inputs, others[0].train_inputs)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["mnist.safetensors"]


def test_two_processes_at_once(hub, tmp_path):
    write(hub, "mnist")
    code = (
        "import dataclasses, hashlib\n"
        "from fedsum.tasks import data\n"
        f"data.SOURCES['mnist'] = dataclasses.replace(data.SOURCES['mnist'], rows={ROWS})\n"
        "print('ready', flush=True)\n"
        "input()\n"
        "print(hashlib.sha256(data.load('mnist').train_inputs.numpy().data).hexdigest())"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    both = [subprocess.Popen([sys.executable, "-c", code], **pipes) for _ in range(2)]
    assert [process.stdout.readline() for process in both] == ["ready\n"] * 2
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
    sums = {process.communicate()[0].strip() for process in both}
    assert sums == {hashlib.sha256(data.load("mnist").train_inputs.numpy().data).hexdigest()}
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["mnist.safetensors"]


def small(table):
    table["image"][3] = encode(np.zeros((28, 27), np.uint8))


def broken(table):
    table["image"][4]["bytes"] = table["image"][4]["bytes"][:60]


def nothing(table):
    table["image"][0]["bytes"] = None


BAD = {
    "no images": (lambda table: table.pop("image"), "columns of FILE = 'label': a Parquet file with the columns"),
    "no labels": (lambda table: table.pop("label"), "columns of FILE = 'image'"),
    "no bytes": (lambda table: table.update(image=["a.png"] * len(table["label"])), "columns of FILE"),
    "labels as text": (lambda table: table.update(label=["one"] * len(table["label"])), "columns of FILE"),
    "rows": (lambda table: [column.pop() for column in table.values()], "rows of FILE = 11: a Parquet file with"),
    "large label": (lambda table: table["label"].__setitem__(2, 10), "FILE column label = 10: labels from 0 to 9"),
    "negative": (lambda table: table["label"].__setitem__(2, -1), "FILE column label"),
    "missing label": (lambda table: table["label"].__setitem__(2, None), "none missing"),
    "small image": (small, "FILE row 3 = '28 x 27 pixels': an image of 28 x 28 pixels"),
    "broken image": (broken, "FILE row 4 = '"),
    "no image": (nothing, "FILE row 0 = 'UnidentifiedImageError': an image of 28 x 28 pixels"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD)
def test_a_file_that_holds_something_else_is_refused(hub, tmp_path, change, message):
    write(hub, "mnist")
    write_split(hub, data.SOURCES["mnist"], "train", change=change)
    path = hub / "ylecun/mnist" / data.SOURCES["mnist"].path("train")
    assert message.replace("FILE", str(path)) in refusal("mnist")
    assert not (tmp_path / "cache").exists()


def test_a_truncated_or_foreign_file_is_refused(hub):
    write(hub, "mnist")
    path = hub / "ylecun/mnist" / data.SOURCES["mnist"].path("test")
    whole = path.read_bytes()
    middle = bytearray(whole)
    middle[4:3000] = bytes(2996)
    for content in (b"", whole[:-1], whole[: len(whole) // 2], b"not a table", bytes(middle)):
        path.write_bytes(content)
        message = refusal("mnist")
        assert message.startswith(str(path))
        assert message.endswith("a Parquet file with the columns image, label and 5 rows")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CIFAR10", "name = 'CIFAR10': did you mean 'cifar10'? known: cifar10, cifar100, digits,"),
        (3, "name = 3: known:"),
        (["mnist"], "name = ['mnist']"),
    ],
)
def test_unknown_sets_are_refused(name, message):
    assert message in refusal(name)


def test_digits_need_nothing(hub, tmp_path):
    digits = data.load("digits")
    assert digits.train_inputs.shape == (1500, 1, 8, 8)
    assert digits.test_inputs.shape == (297, 1, 8, 8)
    assert digits.train_inputs.max() == 240
    assert torch.cat([digits.train_targets, digits.test_targets]).bincount().tolist() == [
        *(178, 182, 177, 183, 181, 182, 181, 179, 174, 180)
    ]
    x = digits.train_inputs / 255
    assert float(x.mean()) == pytest.approx(digits.mean[0], abs=1e-4)
    assert float(x.std()) == pytest.approx(digits.std[0], abs=1e-4)
    assert torch.equal(data.load("digits").test_inputs, digits.test_inputs)
    assert list(tmp_path.iterdir()) == []


# The real sets. Decoding takes seconds the first time; decoded sets stay in the caller's own cache.

FACTS = {  # samples by label of the training set, mean and deviation of the sizes under Dirichlet(0.1)
    "mnist": ([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949], 600, 93),
    "svhn": ([4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659], 733, 228),
    "cifar10": ([5000] * 10, 500, 75),
    "cifar100": ([500] * 100, None, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FACTS)
def test_real_sets(name):
    source = data.SOURCES[name]
    if not REAL or not (Path(REAL) / source.repo).is_dir():
        pytest.skip(f"FEDSUM_DATA does not hold {source.repo}")
    images = data.load(name)
    labels, mean, deviation = FACTS[name]
    assert images.train_inputs.shape == (source.rows["train"], *source.shape)
    assert images.test_inputs.shape == (source.rows["test"], *source.shape)
    assert images.train_targets.bincount().tolist() == labels
    means = [float(images.train_inputs[:, c].float().mean() / 255) for c in range(source.shape[0])]
    assert means == pytest.approx(source.mean, abs=2e-4)
    if mean:
        sizes = [dirichlet(images.train_targets, 100, 0.1, seed).sizes for seed in range(60)]
        assert np.mean(sizes) == pytest.approx(mean, abs=0.5)
        assert np.mean([s.std() for s in sizes]) == pytest.approx(deviation, rel=0.1)
    if name == "cifar100":
        # Every coarse label has five fine labels.
        pairs = set(zip(images.train_targets.tolist(), images.columns["coarse_label"].tolist(), strict=True))
        assert sorted(np.bincount([coarse for _, coarse in pairs]).tolist()) == [5] * 20
