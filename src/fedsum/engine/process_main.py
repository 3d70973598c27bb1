"""The worker process of WorkerEngine, which computes one client after the other."""

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
from .loop import ClientWork
from .step_counts import steps_of

Job = tuple[int, int, dict[str, float], bool, int]
"""client, round, the plan's scalars, whether there is a correction, and the index of the G to write"""


def main(descriptor: int) -> None:
    """Serves jobs until the connection closes. Then the parent has ended, and a job in progress is abandoned."""
    torch.set_num_threads(1)
    connection = Connection(descriptor)
    settings = _Unpickler(io.BytesIO(connection.recv_bytes())).load()
    start, correction, *G = (_mapped(path, (d,), dtype) for path, d, dtype in connection.recv())
    jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, jobs), daemon=True).start()
    client_work = ClientWork(settings["task"], settings["seed"], settings["batch_size"])
    connection.send(None)
    while True:
        client, t, scalars, corrected, index = jobs.get()
        try:
            plan = LocalPlan(start, correction=correction if corrected else None, **scalars)
            G[index].copy_(client_work(plan, client, t, steps_of(settings["K"], client)))
            connection.send(None)
        except Exception:
            connection.send(traceback.format_exc())


def _listen(connection: Connection, jobs: "queue.SimpleQueue[Job]") -> None:
    while True:
        try:
            jobs.put(connection.recv())
        except (EOFError, OSError):
            os._exit(0)


class _Unpickler(pickle.Unpickler):
    """Memory-maps the tensors that the parent wrote to files, each file once."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self._tensors: dict[str, Tensor] = {}

    def persistent_load(self, location: Any) -> Tensor:
        path, shape, dtype, trained = location
        if path not in self._tensors:
            values = _mapped(path, shape, dtype)
            self._tensors[path] = values if trained is None else torch.nn.Parameter(values, trained)
        return self._tensors[path]


def _mapped(path: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.from_file(path, shared=True, size=math.prod(shape), dtype=dtype).view(shape)
