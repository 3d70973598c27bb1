"""The other end of WorkerEngine: a process that computes one client after the other."""

import io
import math
import os
import pickle
import queue
import signal
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from ..algorithms import LocalPlan
from .loop import client_work

Job = tuple[int, int, float, bool, int]
"""client, round, step, whether it is corrected, and which G to write"""


def main(descriptor: int) -> None:
    """Serves until the connection ends, be it in the middle of a client: then the parent is gone."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    connection = Connection(descriptor)
    job = _Unpickler(io.BytesIO(connection.recv_bytes())).load()
    start, correction, *G = (_mapped(path, (d,), dtype) for path, d, dtype in connection.recv())
    asked: queue.SimpleQueue[Job] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, asked), daemon=True).start()
    connection.send(None)
    while True:
        client, t, step, corrected, side = asked.get()
        try:
            plan = LocalPlan(start, step, correction if corrected else None)
            key = {name: job[name] for name in ("seed", "K", "batch_size")}
            G[side].copy_(client_work(job["task"], plan, client, t, **key))
            connection.send(None)
        except Exception:
            connection.send(traceback.format_exc())


def _listen(connection: Connection, asked: "queue.SimpleQueue[Job]") -> None:
    while True:
        try:
            asked.put(connection.recv())
        except (EOFError, OSError):
            os._exit(0)


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self._known: dict[str, Tensor] = {}

    def persistent_load(self, where: Any) -> Tensor:
        path, shape, dtype, trained = where
        if path not in self._known:
            values = _mapped(path, shape, dtype)
            self._known[path] = values if trained is None else torch.nn.Parameter(values, trained)
        return self._known[path]


def _mapped(path: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.from_file(path, shared=True, size=math.prod(shape), dtype=dtype).view(shape)
