"""Image sets: downloaded once, decoded once, then memory-mapped."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..base.checks import InputError, nearest
from ..base.keyed import Purpose, rng
from .set_files import cache_folder, fetched_file, local_path, progress_bar, read_tensors, write_tensors

# The number is increased when decoding changes, so that caches of an older format are refused.
_FORMAT = "fedsum images 1"
_TENSORS = ("train_inputs", "train_targets", "test_inputs", "test_targets")
_DIGITS_TEST = 297
_DECODED_AT_ONCE = 1000


@dataclass(frozen=True, eq=False)
class Images:
    """A set of labelled images, split into training and test images."""

    name: str
    train_inputs: Tensor
    """bytes [M, C, H, W]"""
    train_targets: Tensor
    """labels [M], int64, from 0"""
    test_inputs: Tensor
    test_targets: Tensor
    mean: tuple[float, ...]
    """per channel, for pixels from 0 to 1"""
    std: tuple[float, ...]
    classes: int
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    """further integers per training sample, [M] by name, such as its natural client"""


@dataclass(frozen=True)
class Source:
    """Where a set is on the Hugging Face hub, and what its files must contain."""

    repo: str
    config: str
    shape: tuple[int, int, int]
    rows: Mapping[str, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    classes: int = 10
    image: str = "image"
    label: str = "label"
    columns: tuple[str, ...] = ()

    def path(self, split: str) -> str:
        """Path of the split's file in the repository."""
        return f"{self.config}/{split}-00000-of-00001.parquet"


SOURCES = {
    "mnist": Source(
        repo="ylecun/mnist",
        config="mnist",
        shape=(1, 28, 28),
        rows={"train": 60_000, "test": 10_000},
        mean=(0.1307,),
        std=(0.3081,),
    ),
    "fashion_mnist": Source(
        repo="zalando-datasets/fashion_mnist",
        config="fashion_mnist",
        shape=(1, 28, 28),
        rows={"train": 60_000, "test": 10_000},
        mean=(0.2860,),
        std=(0.3530,),
    ),
    "svhn": Source(
        repo="ufldl-stanford/svhn",
        config="cropped_digits",
        shape=(3, 32, 32),
        rows={"train": 73_257, "test": 26_032},
        mean=(0.4377, 0.4438, 0.4728),
        std=(0.1980, 0.2010, 0.1970),
    ),
    "cifar10": Source(
        repo="uoft-cs/cifar10",
        config="plain_text",
        shape=(3, 32, 32),
        rows={"train": 50_000, "test": 10_000},
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2023, 0.1994, 0.2010),
        image="img",
    ),
    "cifar100": Source(
        repo="uoft-cs/cifar100",
        config="cifar100",
        shape=(3, 32, 32),
        rows={"train": 50_000, "test": 10_000},
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        classes=100,
        image="img",
        label="fine_label",
        columns=("coarse_label",),
    ),
}


IMAGE_SETS = ("digits", *SOURCES)
"""every name that `load` and `vision` accept"""


def load(name: str) -> Images:
    """Loads an image set: mnist, fashion_mnist, svhn, cifar10, cifar100, or digits, which needs no files.

    Files come from the folder FEDSUM_DATA, which has the hub's layout, otherwise from the hub. Decoded sets are
    cached in FEDSUM_CACHE, by default `fedsum` in the user's cache folder (on Linux XDG_CACHE_HOME or ~/.cache).

    >>> digits = load("digits")
    >>> digits.train_inputs.shape, digits.test_inputs.shape
    (torch.Size([1500, 1, 8, 8]), torch.Size([297, 1, 8, 8]))
    """
    if name == "digits":
        return _digits()
    if not isinstance(name, str) or name not in SOURCES:
        raise InputError("name", name, nearest(str(name), ["digits", *SOURCES]))
    source, cache = SOURCES[name], cache_folder() / f"{name}.safetensors"
    if not cache.exists():
        write_tensors(cache, _FORMAT, name, _decode(source))
    tensors = read_tensors(cache, _FORMAT, name)
    split = {key: tensors.pop(key) for key in _TENSORS}
    return Images(name, **split, mean=source.mean, std=source.std, classes=source.classes, columns=tensors)


def at_hand(name: str) -> bool:
    """Whether an image set can be loaded without a download.

    >>> at_hand("digits")  # part of scikit-learn
    True
    """
    if name not in SOURCES:
        return name == "digits"
    source = SOURCES[name]
    return (cache_folder() / f"{name}.safetensors").exists() or all(
        local_path(source.repo, source.path(split)) for split in source.rows
    )


def _digits() -> Images:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = rng(0, Purpose.PARTITION).permutation(len(labels))
    inputs = torch.from_numpy((pixels[order] * 15).astype(np.uint8).reshape(-1, 1, 8, 8))
    targets = torch.from_numpy(labels[order].astype(np.int64))
    return Images(
        name="digits",
        train_inputs=inputs[:-_DIGITS_TEST],
        train_targets=targets[:-_DIGITS_TEST],
        test_inputs=inputs[-_DIGITS_TEST:],
        test_targets=targets[-_DIGITS_TEST:],
        mean=(0.2869,),
        std=(0.3536,),
        classes=10,
    )


# Decoding.


def _decode(source: Source) -> dict[str, Tensor]:
    # Both files are fetched before decoding, because the second may be missing.
    files = {split: fetched_file(source.repo, source.path(split)) for split in source.rows}
    tensors: dict[str, Tensor] = {}
    with progress_bar(f"decoding {source.repo}", sum(source.rows.values())) as advance:
        for split, path in files.items():
            inputs, columns = _decode_file(path, source, split, advance)
            tensors[f"{split}_inputs"] = torch.from_numpy(inputs)
            tensors[f"{split}_targets"] = torch.from_numpy(columns.pop(source.label))
            if split == "train":
                tensors |= {name: torch.from_numpy(column) for name, column in columns.items()}
    return tensors


def _decode_file(
    path: Path, source: Source, split: str, advance: Callable[[int], None]
) -> tuple[np.ndarray[Any, Any], dict[str, np.ndarray[Any, Any]]]:
    """Images [M, C, H, W] and the integer columns, all checked."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, names = source.rows[split], (source.label, *source.columns)
    accepted = f"a Parquet file with the columns {', '.join((source.image, *names))} and {rows} rows"
    inputs = np.empty((rows, *source.shape), dtype=np.uint8)
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            types = {name: schema.field(name).type for name in schema.names}
            image = types.get(source.image)
            if not (image and pa.types.is_struct(image) and image.get_field_index("bytes") >= 0) or not all(
                name in types and pa.types.is_integer(types[name]) for name in names
            ):
                raise InputError(f"columns of {path}", ", ".join(schema.names), accepted)
            if file.metadata.num_rows != rows:
                raise InputError(f"rows of {path}", file.metadata.num_rows, accepted)
            columns = {name: file.read([name])[name].to_numpy() for name in names}
            done = 0
            for batch in file.iter_batches(_DECODED_AT_ONCE, columns=[source.image]):
                for encoded in batch.column(0).field("bytes").to_pylist():
                    inputs[done] = _pixels(f"{path} row {done}", encoded, source.shape)
                    done += 1
                advance(len(batch))
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:100]
        raise InputError(f"{path}", reason, accepted) from error
    for name, column in columns.items():
        # A missing value turns the column into floats.
        if column.dtype.kind not in "iu" or column.min() < 0:
            raise InputError(f"{path} column {name}", column, "whole numbers from 0 up, none missing")
    if columns[source.label].max() >= source.classes:
        largest = int(columns[source.label].max())
        raise InputError(f"{path} column {source.label}", largest, f"labels from 0 to {source.classes - 1}")
    return inputs, {name: column.astype(np.int64) for name, column in columns.items()}


def _pixels(place: str, encoded: bytes | None, shape: tuple[int, int, int]) -> np.ndarray[Any, Any]:
    """[C, H, W] of an encoded image."""
    from PIL import Image

    channels, height, width = shape
    accepted = f"an image of {height} x {width} pixels"
    try:
        # Formats without greyscale store grey images as three equal channels.
        with Image.open(io.BytesIO(encoded or b"")) as image:
            pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(place, f"{type(error).__name__}", accepted) from error
    if pixels.shape[:2] != (height, width):
        raise InputError(place, f"{pixels.shape[0]} x {pixels.shape[1]} pixels", accepted)
    return pixels.reshape(height, width, channels).transpose(2, 0, 1)
