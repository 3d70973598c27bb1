"""The training time of a run, in seconds."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .state import RunState


class TrainingClock:
    """Training time, without the time that evaluations, observers and checkpoints take."""

    def __init__(self, state: RunState, device: torch.device) -> None:
        self._state, self._device = state, device
        self._since = time.perf_counter()

    @contextmanager
    def halted(self, exactly: bool) -> Iterator[None]:
        if exactly and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # otherwise the evaluation's time would include pending rounds
        self._state.training_seconds += time.perf_counter() - self._since
        try:
            yield
        finally:
            self._since = time.perf_counter()
