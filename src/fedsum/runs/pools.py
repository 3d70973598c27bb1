"""Worker pools for sweeps: processes of this machine, or a Ray cluster."""

import math
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Protocol, Self

import torch

from ..base.checks import InputError, integer, real


class Pool(Protocol):
    """Calls functions in worker processes, at most `width` at a time."""

    @property
    def width(self) -> float: ...

    @property
    def shared(self) -> bool:
        """Whether its workers share one machine's cores."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...

    def submit(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Future[Any]: ...

    def ask_to_stop(self) -> None:
        """Asks every run to stop after its current round, with a checkpoint."""
        ...


_GRACE_SECONDS = 5.0
"""seconds for a worker to end before it is killed"""


class WorkerDied(Exception):
    """The worker process of a run died or could not be started."""


class LocalPool:
    """Processes of this machine, each with its own pipe, so that a process that dies ends only its own run.

    Processes are spawned, because neither CUDA nor threads survive a fork. Process j uses GPU j modulo the number of
    GPUs.
    """

    def __init__(self, jobs: int) -> None:
        self.width = integer("jobs", jobs, low=1)
        self.shared = jobs > 1
        self._stop_requested = False
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Any] | None] = queue.SimpleQueue()
        self._busy: set[BaseProcess] = set()
        self._threads = [threading.Thread(target=self._feed_worker, args=(job,), daemon=True) for job in range(jobs)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        if exception[0] is not None:  # a second Ctrl-C, or an error: do not wait for the end of a round
            for end_process in (BaseProcess.terminate, BaseProcess.kill):
                for process in list(self._busy):
                    end_process(process)
                for thread in self._threads:
                    thread.join(_GRACE_SECONDS)
        for thread in self._threads:
            thread.join()

    def submit(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.put((future, (call, arguments, options)))
        return future

    def _feed_worker(self, number: int) -> None:
        """Sends jobs to one worker process; starts a new process if the process has died."""
        # Workers inherit this thread's mask, so that Ctrl-C does not interrupt their imports; the parent handles it.
        # multiprocessing's tracker must run before, because its start removes the mask.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        worker: _Worker | None = None
        while (job := self._jobs.get()) is not None:
            future, work = job
            try:
                if worker is None or not worker.process.is_alive():
                    worker = _Worker(number)
                self._busy.add(worker.process)
                if self._stop_requested:
                    worker.process.terminate()
                worker.connection.send(work)
                result = worker.connection.recv()
            except Exception as error:  # every error must reach the future, because the sweep waits for it
                reason = str(error) or type(error).__name__
                if worker is not None:
                    worker.process.join()
                    reason = f"exit code {worker.process.exitcode}"
                    worker.connection.close()
                    self._busy.discard(worker.process)
                    worker = None
                future.set_exception(WorkerDied(reason))
            else:
                self._busy.discard(worker.process)
                future.set_result(result)
        if worker is not None:
            worker.connection.close()  # ends the process
            worker.process.join()

    def ask_to_stop(self) -> None:
        if not self._stop_requested:
            self._stop_requested = True
            for process in list(self._busy):
                process.terminate()


_SPAWN = multiprocessing.get_context("spawn")


class _Worker:
    """The parent's end of one worker process."""

    def __init__(self, number: int) -> None:
        self.connection, child_connection = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_serve, args=(child_connection, number), daemon=False)
        try:
            self.process.start()
        except BaseException:
            self.connection.close()
            raise
        finally:
            child_connection.close()


def use_gpu(number: int) -> None:
    """Makes GPU `number`, modulo the number of GPUs, the device "cuda" of this process."""
    if torch.cuda.is_available():
        torch.cuda.set_device(number % torch.cuda.device_count())


def _serve(connection: Connection, number: int) -> None:
    """The main loop of a worker process: executes jobs until the connection closes.

    If the connection closes during a run, the parent was killed. The run then stops after its round, with a checkpoint.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent also receives Ctrl-C, and asks the workers to stop
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    use_gpu(number)
    work: queue.SimpleQueue[Any] = queue.SimpleQueue()
    busy = threading.Event()

    def listen() -> None:
        try:
            while True:
                work.put(connection.recv())
                busy.set()
        except (EOFError, OSError):
            if busy.is_set():
                os.kill(os.getpid(), signal.SIGTERM)
            work.put(None)

    threading.Thread(target=listen, daemon=True).start()
    while (job := work.get()) is not None:
        call, arguments, options = job
        result = call(*arguments, **options)
        busy.clear()
        with suppress(OSError):  # the parent may be gone
            connection.send(result)


class RayPool:
    """A Ray cluster. Its machines need fedsum and a shared file system with the runs' folder.

    Args:
      address: the address of a running cluster, as for `ray.init`: "auto" or HOST:PORT.
      gpus: GPUs per run; may be a fraction.
    """

    width = math.inf
    """unlimited: Ray queues the runs that have to wait"""
    shared = True

    def __init__(self, address: str, gpus: float = 0.0) -> None:
        try:
            import ray
        except ImportError:
            accepted = "needs the extra: pip install -c constraints.txt 'fedsum[cluster]'"
            raise InputError("ray", address, accepted) from None
        self._ray, self._references = ray, list[Any]()
        self._stop_requested = False
        try:
            ray.init(address=address, log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            token = "; for a cluster with token authentication, set RAY_AUTH_MODE=token"
            raise InputError("ray", address, f"the address of a running cluster ({error}){token}") from error
        self._gpus = real("gpus", gpus, low=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._ray.shutdown()

    def submit(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Future[Any]:
        # Ray restarts a run whose worker died; the run resumes from its checkpoint.
        remote: Any = self._ray.remote(num_cpus=1, num_gpus=self._gpus, max_retries=3)(call)
        reference = remote.remote(*arguments, **options)
        self._references.append(reference)
        future: Future[Any] = reference.future()
        return future

    def ask_to_stop(self) -> None:
        if not self._stop_requested:
            self._stop_requested = True
            for reference in self._references:
                self._ray.cancel(reference)
