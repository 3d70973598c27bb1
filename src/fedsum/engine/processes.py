"""The loop engine in several processes: on a CPU, two processes of one thread are faster than one of two threads.

Workers are new interpreters. multiprocessing's spawn would run a script without a `__main__` guard a second time, and
cannot start from a notebook or standard input. The task is sent by cloudpickle, which includes classes and functions of
`__main__`. Its large tensors and the vectors are shared through memory-mapped files.
"""

import errno
import io
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..algorithms import LocalPlan
from ..participation import Ids
from ..tasks import BaseTask
from .bank import reserve
from .loop import own_plan
from .step_counts import StepCounts

_ROLES = ("start", "correction", "G0", "G1")
"""the vectors that a worker shares with its parent; one G is read while the other is computed"""
_SHARED_FROM = 2**20  # bytes: smaller tensors are cheaper to copy
# glibc would return freed memory to the system and fault it in again at every step.
_ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**30)}


class WorkerEngine:
    """One thread per worker; a worker that is done takes the next client. Results do not depend on their number.

    Args:
      workers: number of processes; default: one per core.
    """

    name = "workers"

    def __init__(self, task: BaseTask, seed: int, K: StepCounts, batch_size: int, workers: int | None = None) -> None:
        self._workers: list[_Worker] = []
        settings = {"task": task, "seed": seed, "K": K, "batch_size": batch_size}
        # Shared memory needs no disk, but containers often have little of it.
        for directory in ("/dev/shm", None) if os.path.isdir("/dev/shm") else (None,):
            try:
                self._start(settings, task.init(seed), workers or cores(), directory)
                return
            except OSError as error:
                if error.errno != errno.ENOSPC or directory is None:
                    raise

    def _start(self, settings: dict[str, Any], x0: Tensor, workers: int, directory: str | None) -> None:
        folder = Path(tempfile.mkdtemp(prefix="fedsum-", dir=directory))
        try:
            pickled = _pickled(settings, folder)
            for number in range(workers):
                vectors = [_shared(folder / f"worker{number}-{role}", torch.zeros_like(x0)) for role in _ROLES]
                self._workers.append(_Worker(pickled, folder, number, vectors))
            for worker in self._workers:
                worker.answer()
        except BaseException:
            for worker in self._workers:
                worker.process.kill()  # one that is still starting would take seconds to notice the closed connection
            self.close()
            raise
        finally:
            # Every process has mapped the files by now. After this deletion they are freed with the last process.
            shutil.rmtree(folder)

    def __call__(self, plan: LocalPlan, clients: Ids, t: int) -> Tensor:
        """G of each client, [S, d]; the plan's vectors are shared, [d], or stacked, [S, d]."""
        G = plan.start.new_empty(len(clients), plan.start.shape[-1])
        waiting = deque(enumerate(clients.tolist()))
        busy: dict[Connection, tuple[_Worker, int]] = {}

        def hand_out(worker: _Worker, first: bool = False) -> None:
            row, client = waiting.popleft()
            # A start that all clients share is copied once per round.
            worker.ask(own_plan(plan, row), client, t, same_start=plan.start.dim() == 1 and not first)
            busy[worker.connection] = worker, row

        for worker in self._workers[: len(waiting)]:
            hand_out(worker, first=True)
        while busy:
            for connection in wait(list(busy)):
                worker, row = busy.pop(connection)  # type: ignore[call-overload]
                client_G = worker.answer()
                if waiting:
                    hand_out(worker)  # before the copy, so that the worker does not wait for it
                G[row] = client_G
        return G

    def close(self) -> None:
        """Ends the workers, which exit when their connection is closed."""
        for worker in self._workers:
            worker.connection.close()
        for worker in self._workers:
            worker.process.wait()
        self._workers.clear()


def cores() -> int:
    """Number of cores that this process may use."""
    import psutil

    if hasattr(psutil.Process, "cpu_affinity"):  # not on macOS
        return len(psutil.Process().cpu_affinity())
    return psutil.cpu_count() or 1


class _Worker:
    """The parent's end of one worker process."""

    def __init__(self, settings: bytes, folder: Path, number: int, vectors: list[Tensor]) -> None:
        self.start, self.correction, *self.G = vectors
        self.G_index = 0
        ours, theirs = socket.socketpair()
        self.connection = Connection(ours.detach())
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"from fedsum.engine.process_main import main; main({theirs.fileno()})"],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C is handled by the parent, also while this process starts
            env={**_ALLOCATOR, **os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        )
        theirs.close()
        d, dtype = len(self.start), self.start.dtype
        vector_files = [(str(folder / f"worker{number}-{role}"), d, dtype) for role in _ROLES]
        self.connection.send_bytes(settings)
        self.connection.send(vector_files)

    def ask(self, plan: LocalPlan, client: int, t: int, *, same_start: bool) -> None:
        self.G_index = 1 - self.G_index
        if not same_start:
            self.start.copy_(plan.start)
        if plan.correction is not None:
            self.correction.copy_(plan.correction)
        with suppress(BrokenPipeError):  # a worker that ended is reported by `answer`
            scalars = {"step": plan.step, "pull": plan.pull, "decay": plan.decay}
            self.connection.send((client, t, scalars, plan.correction is not None, self.G_index))

    def answer(self) -> Tensor:
        """Waits until the worker is done, and returns its G. The next client's G does not overwrite it."""
        try:
            error = self.connection.recv()
        except (EOFError, ConnectionResetError):
            code = self.process.wait()
            raise RuntimeError(
                f"a worker process ended with code {code}"
                f"{' (killed, perhaps out of memory)' if code == -9 else ''}; engine='loop' needs no processes"
            ) from None
        if error:
            raise RuntimeError(f"a worker process failed:\n{error}")
        return self.G[self.G_index]


def _pickled(settings: dict[str, Any], folder: Path) -> bytes:
    """The settings as bytes. Large tensors are written to files, which every worker memory-maps."""
    import cloudpickle

    locations: dict[int, Any] = {}  # by id: tied weights, one tensor used twice, must stay one tensor

    class Sharing(cloudpickle.Pickler):  # type: ignore[misc]
        def persistent_id(self, value: object) -> object:
            if not isinstance(value, Tensor) or value.nbytes < _SHARED_FROM:
                return None
            if id(value) not in locations:
                path = folder / f"tensor{len(locations)}"
                _shared(path, value.detach())
                locations[id(value)] = (str(path), tuple(value.shape), value.dtype, _trained(value))
            return locations[id(value)]

    buffer = io.BytesIO()
    Sharing(buffer).dump(settings)
    return buffer.getvalue()


def _trained(tensor: Tensor) -> bool | None:
    """True for a trained parameter, False for a frozen one, None for any other tensor."""
    return tensor.requires_grad if isinstance(tensor, torch.nn.Parameter) else None


def _shared(path: Path, values: Tensor) -> Tensor:
    """A copy of `values` in a memory-mapped file."""
    with path.open("wb") as file:
        reserve(file.fileno(), values.nbytes)
    copy = torch.from_file(str(path), shared=True, size=values.numel(), dtype=values.dtype)
    return copy.copy_(values.reshape(-1)).view(values.shape)
