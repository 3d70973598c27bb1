"""The loop engine spread over processes: on a CPU, two of one thread beat one of two threads.

Workers are started as fresh interpreters, not by multiprocessing's spawn, which would run an unguarded script
again and cannot start from a notebook or standard input. The task travels by cloudpickle, which takes along
classes and functions of `__main__`; its large tensors are shared through mapped files, and so are the vectors.
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
from .bank.blocks import reserve
from .loop import own_plan

_ROLES = ("start", "correction", "G0", "G1")
"""the vectors that a worker shares with its parent; G takes turns, so that one is read while the other is made"""
_SHARED_FROM = 2**20  # bytes: smaller tensors are cheaper to copy
# glibc would give freed memory back to the system and fault it in again at every step.
_ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**30)}


class WorkerEngine:
    """One thread a worker; each takes the next client as it is done. Results do not depend on their number.

    Args:
      workers: how many processes; default: one for each core.
    """

    def __init__(self, task: BaseTask, seed: int, K: int, batch_size: int, workers: int | None = None) -> None:
        self._workers: list[_Worker] = []
        job = {"task": task, "seed": seed, "K": K, "batch_size": batch_size}
        # Memory never touches a disk, but containers often have little of it that can be mapped.
        for place in ("/dev/shm", None) if os.path.isdir("/dev/shm") else (None,):
            try:
                self._start(job, task.init(seed), workers or cores(), place)
                return
            except OSError as error:
                if error.errno != errno.ENOSPC or place is None:
                    raise

    def _start(self, job: dict[str, Any], x0: Tensor, workers: int, place: str | None) -> None:
        folder = Path(tempfile.mkdtemp(prefix="fedsum-", dir=place))
        try:
            pickled = _pickled(job, folder)
            for number in range(workers):
                vectors = [_shared(folder / f"worker{number}-{role}", torch.zeros_like(x0)) for role in _ROLES]
                self._workers.append(_Worker(pickled, folder, number, vectors))
            for worker in self._workers:
                worker.answer()
        except BaseException:
            self.close()
            raise
        finally:
            # Everybody has the files mapped by now: unlinked, they vanish with the last process.
            shutil.rmtree(folder)

    def __call__(self, plan: LocalPlan, clients: Ids, t: int) -> Tensor:
        """G of each client, [S, d]; the plan's vectors are shared, [d], or stacked, [S, d]."""
        G = plan.start.new_empty(len(clients), plan.start.shape[-1])
        waiting = deque(enumerate(clients.tolist()))
        busy: dict[Connection, tuple[_Worker, int]] = {}

        def hand_out(worker: _Worker, first: bool = False) -> None:
            row, client = waiting.popleft()
            # A start that all clients share stays where it is for the round.
            worker.ask(own_plan(plan, row), client, t, same_start=plan.start.dim() == 1 and not first)
            busy[worker.connection] = worker, row

        for worker in self._workers[: len(waiting)]:
            hand_out(worker, first=True)
        while busy:
            for connection in wait(list(busy)):
                worker, row = busy.pop(connection)  # type: ignore[call-overload]
                done = worker.answer()
                if waiting:
                    hand_out(worker)  # before the copy: nobody waits for it
                G[row] = done
        return G

    def close(self) -> None:
        """Ends the workers, which leave when nobody talks to them any more."""
        for worker in self._workers:
            worker.connection.close()
        for worker in self._workers:
            worker.process.wait()
        self._workers.clear()


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Worker:
    """The parent's end of one worker process."""

    def __init__(self, job: bytes, folder: Path, number: int, vectors: list[Tensor]) -> None:
        self.start, self.correction, *self.G = vectors
        self.side = 0
        ours, theirs = socket.socketpair()
        self.connection = Connection(ours.detach())
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"from fedsum.engine.process_main import main; main({theirs.fileno()})"],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**_ALLOCATOR, **os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        )
        theirs.close()
        d, dtype = len(self.start), self.start.dtype
        vectors_at = [(str(folder / f"worker{number}-{role}"), d, dtype) for role in _ROLES]
        self.connection.send_bytes(job)
        self.connection.send(vectors_at)

    def ask(self, plan: LocalPlan, client: int, t: int, *, same_start: bool) -> None:
        self.side = 1 - self.side
        if not same_start:
            self.start.copy_(plan.start)
        if plan.correction is not None:
            self.correction.copy_(plan.correction)
        with suppress(BrokenPipeError):  # a worker that is gone is noticed when its answer is awaited
            self.connection.send((client, t, plan.step, plan.correction is not None, self.side))

    def answer(self) -> Tensor:
        """Waits until the worker is done, and returns its G, which the next client's does not overwrite."""
        try:
            trouble = self.connection.recv()
        except (EOFError, ConnectionResetError):
            code = self.process.wait()
            raise RuntimeError(
                f"a worker process ended with code {code}"
                f"{' (killed, perhaps for want of memory)' if code == -9 else ''}; engine='loop' needs none"
            ) from None
        if trouble:
            raise RuntimeError(f"a worker process failed:\n{trouble}")
        return self.G[self.side]


def _pickled(job: dict[str, Any], folder: Path) -> bytes:
    """The job as bytes, its large tensors left in files that every worker maps."""
    import cloudpickle

    seen: dict[int, Any] = {}  # a tensor that is used twice, as tied weights are, must arrive as one

    class Sharing(cloudpickle.Pickler):  # type: ignore[misc]
        def persistent_id(self, thing: object) -> object:
            if not isinstance(thing, Tensor) or thing.nbytes < _SHARED_FROM:
                return None
            if id(thing) not in seen:
                path = folder / f"tensor{len(seen)}"
                _shared(path, thing.detach())
                seen[id(thing)] = (str(path), tuple(thing.shape), thing.dtype, _trained(thing))
            return seen[id(thing)]

    buffer = io.BytesIO()
    Sharing(buffer).dump(job)
    return buffer.getvalue()


def _trained(thing: Tensor) -> bool | None:
    """Whether it is a parameter to train, a frozen one, or (None) no parameter."""
    return thing.requires_grad if isinstance(thing, torch.nn.Parameter) else None


def _shared(path: Path, values: Tensor) -> Tensor:
    """A copy of `values` in a mapped file."""
    with path.open("wb") as file:
        reserve(file.fileno(), values.nbytes)
    copy = torch.from_file(str(path), shared=True, size=values.numel(), dtype=values.dtype)
    return copy.copy_(values.reshape(-1)).view(values.shape)
