"""Ctrl-C, and a cluster's request to leave, wait for the end of a round."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(KeyboardInterrupt):
    """A run was asked to stop, and did so after a round, with a checkpoint."""


class StopRequest:
    """Whether somebody asked; whoever asks twice does not want to wait."""

    asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Takes SIGINT and SIGTERM down as a request while inside; only the main thread can."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    # A signal that is ignored stays so: somebody else hears it for this process.
    heard = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, request) for number in heard}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
