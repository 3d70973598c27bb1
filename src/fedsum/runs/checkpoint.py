"""Checkpoints: the whole state of a run in one file."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..algorithms import Traffic
from ..base.files import flush, written_whole
from ..base.toml_values import Table
from ..engine import FrozenBank, StateBank
from ..participation import DelayMeter, Ids
from ..training import Outstanding, RunState
from . import tensorfile
from .layout import CHECKPOINT, PREVIOUS_CHECKPOINT
from .tensorfile import Entry

_FORMAT = "fedsum checkpoint 3"
_ROWS_PER_CHUNK, _CHUNK_BYTES = 64, 2**28
_OUTSTANDING = "outstanding."
"""of the tensors that only an asynchronous run has"""


class Snapshot:
    """A frozen copy of a run's state, to be written while the run continues.

    Args:
      state: the state of this process.
      settings: the run's settings.
      others: the client states of the other ranks, each as `client_states` returned it there.
    """

    def __init__(self, state: RunState, settings: Table, others: Sequence[Mapping[str, Tensor]] = ()) -> None:
        self.round = state.done
        self._banks = {"clients": state.clients.freeze(), "memory": state.memory.freeze()}
        self._others = others
        # Copied, because an algorithm may change its tensors in place. The server state is small.
        self._server = {name: value.detach().to("cpu", copy=True) for name, value in state.server.items()}
        self._outstanding = state.outstanding.state()
        self._meter = {name: torch.from_numpy(value) for name, value in state.meter.state().items()}
        self._rows = bytearray(json.dumps(state.rows).encode())
        self._metadata = {
            "format": _FORMAT,
            "round": str(self.round),
            "settings": json.dumps(settings),
            "clock": json.dumps({"training": state.training_seconds, "evaluation": state.evaluation_seconds}),
            "simulated": json.dumps({"time": state.time, "late": state.late}),
            "engine": json.dumps(state.engine),
            "sent": json.dumps({"vectors": state.sent.vectors, "bytes": state.sent.bytes}),
        }

    def write(self, folder: Path) -> None:
        """Writes this snapshot as the folder's checkpoint. The existing checkpoint becomes the previous checkpoint."""
        path = folder / CHECKPOINT
        with written_whole(path) as part:
            tensorfile.write(part, dict(self._entries()), self._metadata)
            flush(part)
            if path.exists():
                path.replace(folder / PREVIOUS_CHECKPOINT)

    def release(self) -> None:
        for bank in self._banks.values():
            bank.release()

    def _entries(self) -> Iterator[tuple[str, Entry]]:
        for name, value in self._server.items():
            yield f"server.{name}", Entry.of(value)
        for kind, bank in self._banks.items():
            yield from _bank_entries(kind, bank, self._others)
        for name, value in self._meter.items():
            yield f"delays.{name}", Entry.of(value)
        for name, value in self._outstanding.items():
            yield _OUTSTANDING + name, Entry.of(value)
        yield "metrics", Entry.of(torch.frombuffer(self._rows, dtype=torch.uint8))


def _bank_entries(kind: str, bank: FrozenBank, others: Sequence[Mapping[str, Tensor]]) -> Iterator[tuple[str, Entry]]:
    ids = torch.cat([torch.tensor(bank.ids, dtype=torch.int64), *(states[f"{kind}.ids"] for states in others)])
    yield f"{kind}.ids", Entry.of(ids)
    for name, like in bank.like.items():
        # A list, because the pieces are read later, when `name` has changed.
        pieces = chain(bank.read(name), [states[f"{kind}.{name}"] for states in others])
        yield f"{kind}.{name}", Entry(like.dtype, (len(ids), *like.shape), pieces)


def client_states(state: RunState) -> dict[str, Tensor]:
    """All client states of this process in host memory, under the names of a checkpoint."""
    tensors: dict[str, Tensor] = {}
    for kind, bank in (("clients", state.clients), ("memory", state.memory)):
        frozen = bank.freeze()
        for name, entry in _bank_entries(kind, frozen, []):
            pieces = [piece.clone() for piece in entry.pieces]
            tensors[name] = torch.cat(pieces) if pieces else torch.empty(entry.shape, dtype=entry.dtype)
        frozen.release()
    return tensors


def load(
    path: Path,
    state: RunState,
    check_settings: Callable[[Table], None] = lambda settings: None,
    share: Callable[[Ids], Ids] = lambda clients: clients,
) -> None:
    """Loads a checkpoint into the initial state of a run. Raises a ValueError if the checkpoint cannot be used.

    `check_settings` is called with the settings of the run that wrote it, before anything is loaded. Only the
    states of the `share` of the clients are loaded.
    """
    from safetensors import SafetensorError, safe_open

    tensorfile.verify(path)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != _FORMAT:
                raise ValueError(f"its format is {metadata.get('format')!r}, not {_FORMAT!r}")
            check_settings(json.loads(metadata["settings"]))
            state.server = {name: _read_like(file, f"server.{name}", value) for name, value in state.server.items()}
            for kind, bank in (("clients", state.clients), ("memory", state.memory)):
                _load_bank(file, kind, bank, share)
            tensors = {name: file.get_tensor(f"delays.{name}").numpy() for name in state.meter.state()}
            state.meter = DelayMeter.restored(tensors)
            names = [name for name in file.keys() if name.startswith(_OUTSTANDING)]  # noqa: SIM118  # not a dict
            messages = {name.removeprefix(_OUTSTANDING): file.get_tensor(name) for name in names}
            state.outstanding = Outstanding.restored(messages, state.server["x"].device)
            state.rows = json.loads(bytes(file.get_tensor("metrics").numpy()))
            clock, sent = json.loads(metadata["clock"]), json.loads(metadata["sent"])
            simulated = json.loads(metadata.get("simulated", "{}"))  # older checkpoints have none
    except (SafetensorError, KeyError) as error:
        raise ValueError(str(error)) from error
    state.engine = json.loads(metadata.get("engine", "null"))  # older checkpoints have none
    state.training_seconds, state.evaluation_seconds = clock["training"], clock["evaluation"]
    state.sent = Traffic(**sent)
    state.time, state.late = simulated.get("time", 0.0), simulated.get("late", 0)


def _load_bank(file: Any, kind: str, bank: StateBank, share: Callable[[Ids], Ids]) -> None:
    ids = file.get_tensor(f"{kind}.ids").numpy()
    parts = {name: file.get_slice(f"{kind}.{name}") for name in bank.initial}
    size = sum(value.nbytes for value in bank.initial.values())
    step = max(1, min(_ROWS_PER_CHUNK, _CHUNK_BYTES // max(1, size)))
    for first in range(0, len(ids), step):
        chunk = slice(first, min(first + step, len(ids)))
        rows = {name: parts[name][chunk].to(value) for name, value in bank.initial.items()}
        clients = np.asarray(ids[chunk])
        mine = np.isin(clients, share(clients))
        bank.scatter(clients[mine], {name: value[torch.from_numpy(mine)] for name, value in rows.items()})


def _read_like(file: Any, name: str, value: Tensor) -> Tensor:
    tensor: Tensor = file.get_tensor(name)
    # Copied, because the memory-mapped file may be replaced or removed during the run.
    return tensor.to(value, copy=True)
