"""Who does the work of a sweep: processes of this machine, or a Ray cluster."""

import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, Protocol, Self

from ..checks import InputError, integer, real


class Pool(Protocol):
    """Calls functions elsewhere, `width` at a time."""

    @property
    def width(self) -> float: ...

    @property
    def shared(self) -> bool:
        """Whether its workers share one machine's cores."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]: ...

    def renew(self) -> None:
        """After a worker died."""
        ...

    def ask_to_stop(self) -> None:
        """Every run stops after its round, with a checkpoint."""
        ...


class LocalPool:
    """Processes of this machine. They are spawned anew, since CUDA and threads do not survive a fork."""

    def __init__(self, jobs: int) -> None:
        self.width = integer("jobs", jobs, low=1)
        self.shared = jobs > 1
        self._asked = False
        self._pool = self._make()

    def _make(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(int(self.width), context, initializer=_begin_worker, initargs=(os.getpid(),))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        return self._pool.submit(_busy, call, *arguments)

    def renew(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = self._make()

    def ask_to_stop(self) -> None:
        if not self._asked:
            self._asked = True
            for process in multiprocessing.active_children():
                process.terminate()


_WORKING = threading.Event()


def _busy(call: Callable[..., Any], *arguments: Any) -> Any:
    _WORKING.set()
    try:
        return call(*arguments)
    finally:
        _WORKING.clear()


def _begin_worker(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which asks
    threading.Thread(target=_outlive_nobody, args=(parent,), daemon=True).start()


def _outlive_nobody(parent: int) -> None:
    """A worker whose parent was killed stops after its round, with a checkpoint, and ends."""
    while os.getppid() == parent:
        time.sleep(0.5)
    if _WORKING.is_set():
        os.kill(os.getpid(), signal.SIGTERM)
    while _WORKING.is_set():
        time.sleep(0.1)
    os._exit(1)


class RayPool:
    """A Ray cluster. Its machines have fedsum installed, and the runs' folder on a disk that they share.

    Args:
      address: of a running cluster, as `ray.init` takes it: "auto", or HOST:PORT.
      gpus: of each run; may be a fraction.
    """

    width = math.inf
    """all at once: Ray keeps what has to wait"""
    shared = True

    def __init__(self, address: str, gpus: float = 0.0) -> None:
        try:
            import ray
        except ImportError:
            accepted = "needs the extra: pip install -c constraints.txt 'fedsum[cluster]'"
            raise InputError("ray", address, accepted) from None
        self._ray, self._references = ray, list[Any]()
        self._asked = False
        try:
            ray.init(address=address, log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InputError("ray", address, f"the address of a running cluster ({error})") from error
        self._gpus = real("gpus", gpus, low=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._ray.shutdown()

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        # One whose worker dies is begun again by Ray, and goes on from its checkpoint.
        remote: Any = self._ray.remote(num_cpus=1, num_gpus=self._gpus, max_retries=3)(call)
        reference = remote.remote(*arguments)
        self._references.append(reference)
        future: Future[Any] = reference.future()
        return future

    def renew(self) -> None:
        """Ray starts new workers by itself."""

    def ask_to_stop(self) -> None:
        if not self._asked:
            self._asked = True
            for reference in self._references:
                self._ray.cancel(reference)
