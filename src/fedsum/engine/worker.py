"""The other end of WorkerEngine: a process that computes one client after the other."""

import io
import math
import os
import pickle
import queue
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from ..algorithms import LocalPlan
from .loop import client_work


def main(descriptor: int) -> None:
    """Serves until the connection ends, be it in the middle of a client: then the parent is gone."""
    torch.set_num_threads(1)
    connection = Connection(descriptor)
    job = _Unpickler(io.BytesIO(connection.recv_bytes())).load()
    start, correction, G = (_mapped(path, (d,), dtype) for path, d, dtype in connection.recv())
    asked: queue.SimpleQueue[tuple[int, int, float, bool]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, asked), daemon=True).start()
    connection.send(None)
    while True:
        client, t, step, corrected = asked.get()
        try:
            plan = LocalPlan(start, step, correction if corrected else None)
            G.copy_(client_work(job["task"], plan, client, t, **{k: job[k] for k in ("seed", "K", "batch_size")}))
            connection.send(None)
        except Exception:
            connection.send(traceback.format_exc())


def _listen(connection: Connection, asked: "queue.SimpleQueue[tuple[int, int, float, bool]]") -> None:
    while True:
        try:
            asked.put(connection.recv())
        except (EOFError, OSError):
            os._exit(0)


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, where: Any) -> Tensor:
        return _mapped(*where)


def _mapped(path: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.from_file(path, shared=True, size=math.prod(shape), dtype=dtype).view(shape)
