"""SIGINT (Ctrl-C) and SIGTERM as requests to stop after the current round."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(KeyboardInterrupt):
    """A run stopped on request, after a round and with a checkpoint."""


class StopRequest:
    """A signal handler: the first signal is a request, the second raises KeyboardInterrupt at once."""

    requested = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Handles SIGINT and SIGTERM as stop requests inside the block; only the main thread can handle signals."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    # An ignored signal stays ignored: a worker ignores SIGINT, because its parent handles it.
    handled = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, request) for number in handled}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
