"""Clients' data from common formats: pairs, dicts, data sets, tables, LEAF folders."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from ..base.checks import InputError, nearest
from .partition import Partition, by_column

if TYPE_CHECKING:
    import pandas as pd

_TARGETS = ("label", "labels", "target", "y")
"""names of the column with the targets in a Hugging Face data set"""
_FROM_TABLE = "; for a table, fedsum.tasks.by_client(frame, client=..., target=...)"


class OwnData(list[tuple[Tensor, Tensor]]):
    """One client's data, for a deployment. The other clients have one placeholder sample each.

    `fedsum.flower.own_data` makes one. A `fedsum.tasks.Task` refuses weights by number of samples for it.

    >>> from fedsum.flower import own_data
    >>> isinstance(own_data(1, 3, torch.ones(5, 2), torch.zeros(5)), OwnData)
    True
    """


@dataclass(frozen=True, eq=False)
class ClientData:
    """All clients' samples, and the client of each sample.

    >>> from fedsum.tasks import Partition
    >>> parts = Partition([[0, 2], [1]])  # samples 0 and 2 are the first client's
    >>> data = ClientData(torch.ones(3, 4), torch.tensor([0, 1, 1]), parts, names=("a", "b"))
    >>> data.partition.sizes
    array([2, 1])
    """

    inputs: Tensor
    targets: Tensor
    partition: Partition
    names: tuple[str, ...] | None = None
    """the clients' names by id, for tables and errors; None: their ids"""
    features: tuple[str, ...] | None = None
    """the names of the inputs' columns, if they come from a table"""

    def name(self, client: int) -> str:
        """The client as it was given: its name in quotes, or its number."""
        return str(client) if self.names is None else repr(self.names[client])

    def in_order_of(self, names: Sequence[str]) -> "ClientData":
        """The same data with the clients in the order of `names`; refuses other clients."""
        own = {name: client for client, name in enumerate(self.names or ())}
        for name in (*names, *own):
            if name not in own or name not in names:
                where = "client_test_data" if name not in own else "client_data"
                raise InputError(
                    f"{where} of client",
                    name,
                    "data of the same clients as in the other set; give it at least one row, or drop the client",
                )
        parts = [self.partition.parts[own[name]] for name in names]
        return replace(self, partition=Partition(parts, self.partition.labels), names=tuple(names))


def client_data(field: str, data: Any) -> ClientData:
    """Clients' data in any accepted form.

    Accepted are a ClientData, and one entry per client in a list or, by name, in a dict. An entry is a pair of inputs
    and targets (tensors or arrays), a torch Dataset or a Hugging Face data set.
    """
    if isinstance(data, ClientData):
        joined = data
    elif isinstance(data, Mapping):
        joined = _joined(field, list(data.values()), tuple(map(str, data)))
    else:
        joined = _joined(field, list(_iterated(field, data)), None)
    _check(field, joined)
    return joined


def held_out(data: ClientData, given: Any) -> ClientData | None:
    """The clients' held-out data, in the order of their training data."""
    if given is None:
        return None
    test = client_data("client_test_data", given)
    refuse_other_features("client_test_data", test, data)
    if data.names is not None and test.names is not None:
        return test.in_order_of(data.names)
    if test.partition.n != data.partition.n:
        raise InputError(
            "client_test_data", f"{test.partition.n} clients", f"as many as client_data, {data.partition.n}"
        )
    return test


def by_client(frame: "pd.DataFrame", *, client: str, target: str, features: Sequence[str] | None = None) -> ClientData:
    """Client data from a table: one client per distinct value of a column, in sorted order.

    Args:
      frame: one row per sample.
      client: the column with the clients, such as "hospital".
      target: the column with the targets. Whole numbers and booleans are class labels, other numbers are float32.
      features: the columns with the inputs, as float32; default: all others. Leave out identifiers, and scale columns
        to mean 0 and standard deviation 1 first.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"hospital": ["b", "a", "b"], "age": [31, 58, 44], "y": [0, 1, 1]})
    >>> data = by_client(frame, client="hospital", target="y")
    >>> data.names, data.partition.sizes, data.inputs.shape
    (('a', 'b'), array([1, 2]), torch.Size([3, 1]))
    """
    given: Any = frame
    if not _is_frame(given):
        given = given if isinstance(given, str) else type(given).__name__
        raise InputError("frame", given, "a table, as of pandas.read_csv")
    columns = [str(name) for name in frame.columns]
    inputs = [name for name in frame.columns if name not in (client, target)] if features is None else list(features)
    for field, name in (("client", client), ("target", target), *(("features", name) for name in inputs)):
        if name not in frame.columns:
            raise InputError(field, name, nearest(str(name), columns))
    if not len(frame) or not inputs:
        raise InputError("frame of shape", frame.shape, "at least one row, and one column besides client and target")
    clients = frame[client]
    if clients.isna().any():
        raise InputError(f"column {client!r}, row", int(np.flatnonzero(clients.isna())[0]), "no client; drop the row")
    for name in (*inputs, target):
        values = frame[name]
        # pandas' own types are checked by it: a column of text or dates is no number.
        if values.dtype.kind not in "biuf" and not hasattr(values.dtype, "numpy_dtype"):
            accepted = (
                "a column of numbers or booleans; number the classes first, as pandas.factorize does"
                if name == target
                else "a column of numbers; encode categories first, as pandas.get_dummies does, or leave it out with"
                " features=[...]"
            )
            raise InputError(f"{'target' if name == target else 'column'} {name!r}", str(values.dtype), accepted)
        if values.isna().any():
            row = int(np.flatnonzero(values.isna())[0])
            accepted = f"no value, for client {clients.iloc[row]!r}; fill it or drop the row (rows count from 0)"
            raise InputError(f"column {name!r}, row", row, accepted)
    targets = frame[target].to_numpy()
    labels = targets.astype(np.int64) if targets.dtype.kind in "biu" else None
    return ClientData(
        torch.tensor(frame[inputs].to_numpy(dtype=np.float32)),
        torch.tensor(targets.astype(np.float32) if labels is None else labels),
        by_column(clients.astype(str), None if labels is None or labels.min() < 0 else labels),
        tuple(map(str, np.unique(clients.astype(str)))),
        tuple(map(str, inputs)),
    )


def leaf(folder: str | Path) -> ClientData:
    """The clients of a folder of LEAF's JSON files, such as `data/train`; one client per user.

    Inputs are float32. Data of text must be encoded as numbers first.
    """
    files = sorted(Path(folder).glob("*.json"))
    if not files:
        raise InputError("folder", str(folder), "a folder with LEAF's .json files, such as data/train")
    users: dict[str, tuple[Tensor, Tensor]] = {}
    for path in files:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))["user_data"]
            arrays = {str(user): (np.asarray(d["x"]), np.asarray(d["y"])) for user, d in content.items()}
        except (OSError, ValueError, LookupError, TypeError) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError("file", str(path), f"LEAF's JSON, with user_data, x and y ({reason})") from error
        for user, (x, y) in arrays.items():
            if user in users:
                raise InputError(f"user of {path}", user, "given twice")
            if x.dtype.kind not in "biuf" or y.dtype.kind not in "biuf":
                raise InputError(f"user {user!r} of {path}", f"{x.dtype}, {y.dtype}", "numbers; encode text first")
            labels = y.dtype.kind in "biu"
            users[user] = (
                torch.from_numpy(x.astype(np.float32)),
                torch.from_numpy(y.astype(np.int64 if labels else np.float32)),
            )
    return client_data(str(folder), users)


def refuse_other_features(field: str, given: Any, data: ClientData) -> None:
    """Refuses columns of a table that are not those of the training data, in the same order."""
    if not isinstance(given, ClientData) or given.features is None or data.features is None:
        return
    for place, (name, expected) in enumerate(zip_longest(given.features, data.features)):
        if name != expected:
            accepted = "no such column" if expected is None else f"{expected!r}"
            accepted += ", as in client_data; give by_client the same features=[...] for both tables"
            raise InputError(f"{field}.features[{place}]", name, accepted)


def checked_test_data(test_data: tuple[Tensor, Tensor] | ClientData | None) -> tuple[Tensor, Tensor] | None:
    """The inputs and the targets of the test data, checked; of a ClientData, those of all clients."""
    if test_data is None:
        return None
    if isinstance(test_data, ClientData):
        test_data = test_data.inputs, test_data.targets
    pair = isinstance(test_data, tuple | list) and len(test_data) == 2
    if (
        not pair
        or not all(isinstance(side, Tensor) for side in test_data)
        or len(test_data[0]) != len(test_data[1])
        or not len(test_data[0])
    ):
        accepted = "a tensor of inputs and one of as many targets"
        raise InputError("test_data", type(test_data).__name__, f"{accepted}{_FROM_TABLE * _is_frame(test_data)}")
    for side, values in zip(("inputs", "targets"), test_data, strict=True):
        if (sample := _not_finite(values)) is not None:
            raise InputError(f"test_data, {side} of sample", sample, "finite numbers; it has NaN or infinity")
    return test_data[0], test_data[1]


def _is_frame(data: Any) -> bool:
    """Whether `data` is a DataFrame, without an import of pandas."""
    return hasattr(data, "columns") and hasattr(data, "iloc")


def _iterated(field: str, data: Any) -> Iterable[Any]:
    if isinstance(data, str | bytes | Tensor) or not isinstance(data, Iterable) or _is_frame(data):
        accepted = "one pair (inputs, targets) per client, or a dict of them by name"
        raise InputError(field, type(data).__name__, f"{accepted}{_FROM_TABLE * _is_frame(data)}")
    return data


def _joined(field: str, entries: Sequence[Any], names: tuple[str, ...] | None) -> ClientData:
    if not len(entries):
        raise InputError(field, entries, "at least one client")
    places = [f"{field}[{i if names is None else repr(names[i])}]" for i in range(len(entries))]
    pairs = [_pair(place, entry) for place, entry in zip(places, entries, strict=True)]
    for place, pair in zip(places, pairs, strict=True):
        for side, noun in enumerate(("samples", "targets")):
            shape, first = tuple(pair[side].shape[1:]), tuple(pairs[0][side].shape[1:])
            if shape != first:
                accepted = f"{first}, as client {0 if names is None else repr(names[0])}'s"
                raise InputError(f"{place} with {noun} of shape", shape, accepted)
    cuts = np.cumsum([len(targets) for _, targets in pairs])
    parts = np.split(np.arange(cuts[-1]), cuts[:-1])
    inputs, targets = (torch.cat([pair[side] for pair in pairs]) for side in (0, 1))
    integers = targets.dim() == 1 and not targets.is_floating_point() and targets.dtype != torch.bool
    labels = targets.numpy() if integers and targets.min() >= 0 else None
    return ClientData(inputs, targets, Partition(parts, labels), names)


def _pair(place: str, entry: Any) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one client."""
    if isinstance(entry, TensorDataset):
        entry = entry.tensors
    elif hasattr(entry, "column_names"):
        entry = _columns(place, entry)
    elif not isinstance(entry, tuple | list) and hasattr(entry, "__getitem__") and hasattr(entry, "__len__"):
        entry = _items(place, entry)
    if not isinstance(entry, tuple | list) or len(entry) != 2:
        raise InputError(place, type(entry).__name__, "a pair (inputs, targets), or a data set with a length")
    try:
        inputs, targets = (torch.as_tensor(side) for side in entry)
        lengths = len(inputs), len(targets)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(place, type(entry).__name__, f"inputs and targets as arrays of numbers ({reason})") from error
    if lengths[0] != lengths[1]:
        raise InputError(place, f"{lengths[0]} inputs, {lengths[1]} targets", "inputs and targets of the same samples")
    if not lengths[0]:
        raise InputError(place, "no samples", "at least one sample; leave the client out")
    return inputs, targets


def _items(place: str, dataset: Any) -> tuple[Any, Any]:
    """All samples of a torch Dataset."""
    items = [dataset[i] for i in range(len(dataset))]
    if not items:
        raise InputError(place, "no samples", "at least one sample; leave the client out")
    if any(not isinstance(item, tuple | list) or len(item) != 2 for item in items):
        raise InputError(place, type(items[0]).__name__, "a data set whose samples are pairs (input, target)")
    return _stacked([item[0] for item in items]), _stacked([item[1] for item in items])


def _columns(place: str, dataset: Any) -> tuple[Any, Any]:
    """Both columns of a Hugging Face data set."""
    names = list(dataset.column_names)
    targets = [name for name in names if name in _TARGETS]
    if len(names) != 2 or len(targets) != 1:
        accepted = f"two columns, the inputs and one of {', '.join(_TARGETS)}: use select_columns and rename_column"
        raise InputError(f"{place} with columns", ", ".join(map(str, names)), accepted)
    (inputs,) = set(names) - set(targets)
    return _stacked(dataset[inputs][:]), _stacked(dataset[targets[0]][:])


def _stacked(values: Any) -> Tensor:
    if isinstance(values, Tensor):
        return values
    return torch.stack([v if isinstance(v, Tensor) else torch.as_tensor(np.asarray(v)) for v in values])


def _check(field: str, data: ClientData) -> None:
    if len(data.inputs) != len(data.targets):
        raise InputError(f"{field} with targets", len(data.targets), f"as many as inputs, {len(data.inputs)}")
    last = max(int(part.max()) for part in data.partition.parts)
    if last >= len(data.inputs):
        raise InputError(f"{field}.partition with sample", last, f"samples from 0 to {len(data.inputs) - 1}")
    if data.names is not None and len(data.names) != data.partition.n:
        raise InputError(f"{field}.names", f"{len(data.names)} names", f"one per client, {data.partition.n}")
    for side, values in (("inputs", data.inputs), ("targets", data.targets)):
        if (sample := _not_finite(values)) is not None:
            owner = next((i for i, part in enumerate(data.partition.parts) if sample in part), None)
            if owner is not None:
                place = int(np.flatnonzero(data.partition.parts[owner] == sample)[0])
                where = f"{field}[{data.name(owner)}], {side} of sample"
                raise InputError(where, place, "finite numbers; it has NaN or infinity")


def _not_finite(values: Tensor) -> int | None:
    """The first sample with NaN or infinity."""
    if not values.is_floating_point() or bool(values.isfinite().all()):
        return None
    return int((~values.isfinite()).reshape(len(values), -1).any(1).nonzero()[0])
