"""Partitions of a data set's samples over clients. Every sample goes to exactly one client."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..base.checks import InputError, choice, integer, real
from ..base.keyed import Purpose, rng

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Indices = NDArray[np.int64]
_ROWS_SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """The samples of each client, and optionally their labels.

    >>> split = Partition([[0, 3], [1, 2, 4]], labels=[0, 1, 1, 0, 1])
    >>> split
    Partition(2 clients, 5 samples, 2 to 3 per client, 2 labels)
    >>> split.counts.tolist()
    [[2, 0], [0, 3]]
    """

    parts: list[Indices]
    """sample indices per client"""
    labels: Indices | None = None
    """label of every sample, from 0"""

    def __post_init__(self) -> None:
        if not len(self.parts):
            raise InputError("parts", self.parts, "at least one client")
        parts = [_indices(f"parts[{i}]", part) for i, part in enumerate(self.parts)]
        object.__setattr__(self, "parts", parts)
        samples = np.sort(np.concatenate(parts))
        repeated = samples[1:][samples[1:] == samples[:-1]]
        if len(repeated):
            raise InputError("parts with sample", int(repeated[0]), "given twice; every sample goes to one client")
        if self.labels is not None:
            object.__setattr__(self, "labels", _indices("labels", self.labels))
            last = max(int(part.max()) for part in parts)
            if last >= len(self.labels):
                raise InputError(
                    "parts with sample", last, f"samples from 0 to {len(self.labels) - 1}, which have labels"
                )

    @property
    def n(self) -> int:
        """N, the number of clients."""
        return len(self.parts)

    @property
    def sizes(self) -> Indices:
        """Number of samples per client, [N]."""
        return np.array([len(part) for part in self.parts], dtype=np.int64)

    @property
    def counts(self) -> Indices:
        """Number of samples per client and label, [N, labels]."""
        if self.labels is None:
            raise InputError("labels", None, "the label of every sample")
        classes = int(self.labels.max()) + 1
        return np.stack([np.bincount(self.labels[part], minlength=classes) for part in self.parts])

    def __repr__(self) -> str:
        sizes, labels = self.sizes, "" if self.labels is None else f", {self.counts.shape[1]} labels"
        return f"Partition({self.n} clients, {sizes.sum()} samples, {sizes.min()} to {sizes.max()} per client{labels})"

    def _repr_html_(self) -> str:
        """Samples per label of the first clients, for notebooks."""
        import pandas as pd

        counts = pd.DataFrame({"samples": self.sizes} if self.labels is None else self.counts).head(_ROWS_SHOWN)
        return f"<p>{self!r}</p>" + str(counts.rename_axis("client").to_html())

    def plot(self) -> "Figure":
        """Number of samples per client as stacked bars, one colour per label."""
        from ..figures import NotebookFigure, stacked_bars

        figure = NotebookFigure(figsize=(9.0, 3.6), layout="constrained")
        stacked_bars(figure.subplots(), self.sizes[:, None] if self.labels is None else self.counts)
        return figure


def dirichlet(labels: ArrayLike | Tensor, n: int, alpha: float, seed: int = 0, refill: bool = False) -> Partition:
    """The paper's partition: each client draws its label proportions q_i ~ Dir(alpha), and client i gets
    q_ik / sum_j q_jk of the samples with label k. Sizes are mildly unequal.

    Args:
      labels: label of every sample.
      n: N, the number of clients.
      alpha: if small, clients have one or two labels; if large, all clients are alike.
      seed: seed of the partition.
      refill: give every client without samples one sample of the largest client, instead of raising an error.

    >>> dirichlet([0, 1] * 50, n=3, alpha=0.5).counts.sum(0)
    array([50, 50])
    """
    sample_labels = _check(labels, n, alpha, seed)
    draw = rng(seed, Purpose.PARTITION)
    return _split(sample_labels, _dirichlet(draw, alpha, (n, len(np.unique(sample_labels)))), draw, refill)


def class_dirichlet(labels: ArrayLike | Tensor, n: int, alpha: float, seed: int = 0, refill: bool = False) -> Partition:
    """The other common partition: each label's samples are split over the clients in proportions ~ Dir(alpha).
    Sizes are very unequal. Arguments as for `dirichlet`.

    >>> class_dirichlet([0, 1] * 50, n=3, alpha=0.5).counts.sum(0)
    array([50, 50])
    """
    sample_labels = _check(labels, n, alpha, seed)
    draw = rng(seed, Purpose.PARTITION)
    return _split(sample_labels, _dirichlet(draw, alpha, (len(np.unique(sample_labels)), n)).T, draw, refill)


def iid(samples: int, n: int, seed: int = 0, labels: ArrayLike | Tensor | None = None) -> Partition:
    """Shuffled samples, split evenly: sizes differ by at most one.

    >>> iid(7, n=3).sizes
    array([3, 2, 2])
    """
    integer("samples", samples, low=1)
    _check_n(n, samples)
    integer("seed", seed, low=0)
    sample_labels = None if labels is None else _indices("labels", labels)
    if sample_labels is not None and len(sample_labels) != samples:
        raise InputError("labels of length", len(sample_labels), f"{samples}, one per sample")
    order = rng(seed, Purpose.PARTITION).permutation(samples)
    return Partition([np.sort(part) for part in np.array_split(order, n)], sample_labels)


def shards(labels: ArrayLike | Tensor, n: int, per_client: int = 2, seed: int = 0) -> Partition:
    """Samples sorted by label and cut into n * per_client shards, assigned at random: few labels per client.

    >>> shards([0, 1, 2, 3] * 5, n=4, per_client=1).counts.max(1)
    array([5, 5, 5, 5])
    """
    sample_labels = _indices("labels", labels)
    _check_n(n, len(sample_labels))
    integer("per_client", per_client, low=1, high=len(sample_labels) // n, high_name="samples / n")
    integer("seed", seed, low=0)
    pieces = np.array_split(np.argsort(sample_labels, kind="stable"), n * per_client)
    assigned = rng(seed, Purpose.PARTITION).permutation(len(pieces)).reshape(n, per_client)
    parts = [np.sort(np.concatenate([pieces[j] for j in client_pieces])) for client_pieces in assigned]
    return Partition(parts, sample_labels)


def by_column(values: ArrayLike | Tensor, labels: ArrayLike | Tensor | None = None) -> Partition:
    """Natural clients: one per distinct value (a writer, a speaker, a hospital), in sorted order.

    >>> by_column(["ann", "bob", "ann"]).parts
    [array([0, 2]), array([1])]
    """
    column = np.asarray(values)
    if column.ndim != 1 or not len(column):
        raise InputError("values of shape", column.shape, "[samples], at least one")
    sample_labels = None if labels is None else _indices("labels", labels)
    if sample_labels is not None and len(sample_labels) != len(column):
        raise InputError("labels of length", len(sample_labels), f"{len(column)}, one per sample")
    _, client, sizes = np.unique(column, return_inverse=True, return_counts=True)
    return Partition(np.split(np.argsort(client, kind="stable"), np.cumsum(sizes)[:-1]), sample_labels)


def named_partition(
    kind: str | Partition,
    labels: Tensor,
    clients: int | None,
    *,
    default_clients: int,
    alpha: float,
    refill: bool,
    shards_per_client: int,
    seed: int,
    columns: Mapping[str, Tensor],
) -> Partition:
    """The partition of that name, or of a column of the data set; your own Partition is returned unchanged."""
    if isinstance(kind, Partition):
        if clients not in (None, kind.n):
            raise InputError("clients", clients, f"leave it out: the partition has {kind.n} clients")
        return kind
    n = default_clients if clients is None else clients
    by_name: dict[str, Callable[[], Partition]] = {
        "dirichlet": lambda: dirichlet(labels, n, alpha, seed, refill),
        "class_dirichlet": lambda: class_dirichlet(labels, n, alpha, seed, refill),
        "iid": lambda: iid(len(labels), n, seed, labels),
        "shards": lambda: shards(labels, n, shards_per_client, seed),
    }
    for column, values in columns.items():
        by_name[column] = partial(by_column, values, labels)
    make = choice("partition", kind, by_name)
    if kind in columns and clients is not None:
        raise InputError("clients", clients, f"leave it out: partition={kind!r} makes one client per value")
    return make()


def _dirichlet(draw: np.random.Generator, alpha: float, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Logarithms of Dirichlet rows. For a small alpha most proportions are too small for a float, but their ratios
    still decide which client gets a label: log Gamma(alpha) = log(Gamma(alpha + 1) U^(1/alpha)).
    """
    logs: NDArray[np.float64] = np.log(draw.standard_gamma(alpha + 1, shape)) - draw.standard_exponential(shape) / alpha
    logs -= np.logaddexp.reduce(logs, axis=1, keepdims=True)
    return logs


def _split(labels: Indices, logs: NDArray[np.float64], draw: np.random.Generator, refill: bool) -> Partition:
    """Splits each label's shuffled samples in proportion to its column of exp(logs), [clients, distinct labels]."""
    n = len(logs)
    shares = np.exp(logs - np.logaddexp.reduce(logs, axis=0))
    parts: list[list[Indices]] = [[] for _ in range(n)]
    for column, label in enumerate(np.unique(labels)):
        samples = draw.permutation(np.flatnonzero(labels == label))
        # Cumulative shares are rounded, so that every sample is assigned.
        cuts = np.rint(np.cumsum(shares[:-1, column]) * len(samples)).astype(np.int64)
        for part, piece in zip(parts, np.split(samples, cuts), strict=True):
            part.append(piece)
    joined = [np.sort(np.concatenate(part)) for part in parts]
    sizes = np.array([len(part) for part in joined])
    for empty in np.flatnonzero(sizes == 0):
        if not refill:
            raise InputError(
                f"samples of client {empty}", 0, "at least one: use a larger alpha, fewer clients or refill=True"
            )
        largest = sizes.argmax()
        joined[empty], joined[largest] = joined[largest][-1:], joined[largest][:-1]
        sizes[empty], sizes[largest] = 1, sizes[largest] - 1
    return Partition(joined, labels)


def _check(labels: ArrayLike | Tensor, n: int, alpha: float, seed: int) -> Indices:
    sample_labels = _indices("labels", labels)
    _check_n(n, len(sample_labels))
    # A smaller alpha overflows in 1/alpha. Clients already have a single label at far larger values.
    real("alpha", alpha, low=1e-6)
    integer("seed", seed, low=0)
    return sample_labels


def _check_n(n: int, samples: int) -> None:
    integer("n", n, low=1, high=samples, high_name="the samples")


def _indices(field: str, values: ArrayLike | Tensor) -> Indices:
    """`values` as a vector of whole numbers from 0 up, at least one."""
    accepted = "a vector of whole numbers from 0 up, at least one"
    try:
        array = np.asarray(values)
    except ValueError:  # a ragged list
        raise InputError(field, values, accepted) from None
    if array.ndim != 1 or not len(array) or not np.issubdtype(array.dtype, np.integer) or array.min() < 0:
        raise InputError(field, values, accepted)
    return array.astype(np.int64, copy=False)
