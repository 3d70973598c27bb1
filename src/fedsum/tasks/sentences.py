"""Sets of labelled sentences: fetched once, tokenised once, then memory-mapped."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..base.checks import InputError, choice
from .set_files import cache_folder, fetched_file, local_path, progress_bar, read_tensors, write_tensors

# The number is increased when tokenising changes, so that caches of an older format are refused.
_FORMAT = "fedsum tokens 1"
_TOKENISED_AT_ONCE = 1000
_TENSORS = ("train_inputs", "train_targets", "test_inputs", "test_targets")


class Tokenizer(Protocol):
    """Turns sentences into token ids."""

    key: str
    """identifies the tokenizer: the same key, the same ids"""

    def prepare(self, training: list[str]) -> None:
        """Called once before the first sentence, with all training sentences."""

    def __call__(self, sentences: list[str], longest: int) -> list[list[int]]:
        """The ids of each sentence, with special tokens, cut to at most `longest`."""
        ...


@dataclass(frozen=True, eq=False)
class Sentences:
    """Labelled sentences as tokens, in a training and a test set. Both are sorted by length, the shortest first."""

    name: str
    train_inputs: Tensor
    """ids plus 1, [M, L], int32; 0 is padding"""
    train_targets: Tensor
    """labels [M], int64, from 0"""
    test_inputs: Tensor
    test_targets: Tensor
    classes: int


@dataclass(frozen=True)
class TextSource:
    """Where a set is on the Hugging Face hub, and what its files must contain."""

    repo: str
    config: str
    splits: Mapping[str, tuple[str, int]]
    """of "train" and "test": the name of the file's split, and its rows"""
    classes: int
    sentence: str = "sentence"
    label: str = "label"

    def path(self, split: str) -> str:
        """Path of the split's file in the repository."""
        return f"{self.config}/{self.splits[split][0]}-00000-of-00001.parquet"


TEXT_SOURCES = {
    # The labels of the set's own test split are not public.
    "sst2": TextSource(
        repo="stanfordnlp/sst2",
        config="data",
        splits={"train": ("train", 67_349), "test": ("validation", 872)},
        classes=2,
    ),
}
TEXT_SETS = tuple(TEXT_SOURCES)
"""every name that `text` accepts"""


def load_sentences(name: str, tokenizer: Tokenizer, longest: int) -> Sentences:
    """Loads a text set (sst2) as tokens, at most `longest` per sentence.

    Files come from the folder FEDSUM_DATA, which has the hub's layout, otherwise from the hub. Tokens are cached in
    FEDSUM_CACHE, one file per set and tokenizer.
    """
    source = choice("name", name, TEXT_SOURCES)
    key = hashlib.sha256(f"{tokenizer.key}, at most {longest}".encode()).hexdigest()[:16]
    cache = cache_folder() / f"{name}-{key}.safetensors"
    if not cache.exists():
        write_tensors(cache, _FORMAT, f"{name}-{key}", _tokenised(source, tokenizer, longest))
    tensors = read_tensors(cache, _FORMAT, f"{name}-{key}")
    return Sentences(name, **{key: tensors[key] for key in _TENSORS}, classes=source.classes)


def sentences_at_hand(name: str) -> bool:
    """Whether a text set's files are in the folder FEDSUM_DATA."""
    source = TEXT_SOURCES.get(name)
    return source is not None and all(local_path(source.repo, source.path(split)) for split in source.splits)


class WordTokenizer:
    """The most frequent words of the training sentences, split at spaces; for models without a vocabulary.

    >>> tokenizer = WordTokenizer(words=2)
    >>> tokenizer.prepare(["a good film", "a film", "bad"])
    >>> tokenizer(["A good film", "film"], longest=4)
    [[2, 4, 1, 3], [2, 5, 3]]
    """

    _SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")

    def __init__(self, words: int) -> None:
        self.key = f"the {words} most frequent words"
        self.size = words + len(self._SPECIAL)
        """number of ids"""
        self._words = words
        self._ids: dict[str, int] = {}

    def prepare(self, training: list[str]) -> None:
        counts = Counter(word for sentence in training for word in sentence.lower().split())
        # Among equally frequent words the first in the alphabet, so that the order of sentences does not matter.
        words = sorted(counts, key=lambda word: (-counts[word], word))[: self._words]
        self._ids = {word: id for id, word in enumerate([*self._SPECIAL, *words])}

    def __call__(self, sentences: list[str], longest: int) -> list[list[int]]:
        unknown, first, last = (self._ids[name] for name in self._SPECIAL[1:])
        split = (sentence.lower().split()[: longest - 2] for sentence in sentences)
        return [[first, *(self._ids.get(word, unknown) for word in words), last] for words in split]


# Tokenising.


def _tokenised(source: TextSource, tokenizer: Tokenizer, longest: int) -> dict[str, Tensor]:
    # All files are fetched and checked before tokenising, because one may be missing.
    files = {split: fetched_file(source.repo, source.path(split)) for split in source.splits}
    columns = {split: _read_file(path, source, source.splits[split][1]) for split, path in files.items()}
    tokenizer.prepare(columns["train"][0])
    tensors: dict[str, Tensor] = {}
    with progress_bar(f"tokenising {source.repo}", sum(rows for _, rows in source.splits.values())) as advance:
        for split, (sentences, labels) in columns.items():
            inputs = _tokens(sentences, tokenizer, longest, advance)
            order = torch.argsort((inputs > 0).sum(1), stable=True)
            tensors[f"{split}_inputs"] = inputs[order]
            tensors[f"{split}_targets"] = torch.from_numpy(labels)[order]
    return tensors


def _tokens(sentences: list[str], tokenizer: Tokenizer, longest: int, advance: Callable[[int], None]) -> Tensor:
    tokens = torch.zeros(len(sentences), longest, dtype=torch.int32)
    for first in range(0, len(sentences), _TOKENISED_AT_ONCE):
        some = sentences[first : first + _TOKENISED_AT_ONCE]
        for row, ids in enumerate(tokenizer(some, longest), first):
            tokens[row, : len(ids)] = torch.tensor(ids, dtype=torch.int32) + 1
        advance(len(some))
    return tokens


def _read_file(path: Path, source: TextSource, rows: int) -> tuple[list[str], np.ndarray[Any, Any]]:
    """Sentences and labels, checked."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [source.sentence, source.label]
    accepted = f"a Parquet file with the columns {', '.join(names)} and {rows} rows"
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            types = {name: schema.field(name).type for name in schema.names}
            if not all(name in types for name in names) or not (
                pa.types.is_string(types[source.sentence]) and pa.types.is_integer(types[source.label])
            ):
                raise InputError(f"columns of {path}", ", ".join(schema.names), accepted)
            if file.metadata.num_rows != rows:
                raise InputError(f"rows of {path}", file.metadata.num_rows, accepted)
            table = file.read(names)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}", " ".join(str(error).split())[:100], accepted) from error
    sentences, labels = table[source.sentence], table[source.label]
    if sentences.null_count:
        raise InputError(f"{path} column {source.sentence}", None, "sentences, none missing")
    values = labels.to_numpy()
    # A missing value turns the column into floats.
    if values.dtype.kind not in "iu" or values.min() < 0 or values.max() >= source.classes:
        raise InputError(f"{path} column {source.label}", values, f"labels from 0 to {source.classes - 1}")
    return sentences.to_pylist(), values.astype(np.int64)
