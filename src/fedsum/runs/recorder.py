"""What simulate() tells the folder of its run as rounds pass."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from ..base.checks import InputError
from ..training.options import Options
from . import checkpoint
from .checkpoint import RunState, Snapshot
from .folder import RunFolder
from .interrupt import Stopped, StopRequest, stop_requests
from .recipes import Table
from .standing import standing

_STATUS_EVERY = 1.0
_PAUSES_BETWEEN = 20
"""a checkpoint that stops training for some time is not repeated within so many times that"""


@contextmanager
def recorder(
    path: str | Path | None, config: Callable[[], Table], options: Options, device: torch.device
) -> Iterator["Recorder | None"]:
    """Records the run inside in its folder, if it has one: whatever ends it, the folder says so."""
    if path is None:
        yield None
        return
    with closing(RunFolder(path)) as folder, stop_requests() as request:
        folder.claim(config(), device)
        recording = Recorder(folder, options, request)
        try:
            yield recording
        except KeyboardInterrupt as stop:
            recording.ended("stopped", str(stop))
            raise
        except Exception as error:
            recording.ended("failed", " ".join(f"{error}".split()) or type(error).__name__)
            raise
        finally:
            recording.wait()


class Recorder:
    """Appends metrics, and writes checkpoints in the background."""

    def __init__(self, folder: RunFolder, options: Options, request: StopRequest) -> None:
        self.folder, self.done, self._finished = folder, 0, False
        self._options, self._request = options, request
        self._saved_round, self._saved_at, self._pause = 0, time.monotonic(), 0.0
        self._status_at = 0.0
        self._writer: threading.Thread | None = None
        self._failure: Exception | None = None

    def restore(self, state: RunState) -> None:
        """Puts the run's checkpoint into a state that has just begun, if there is one."""
        path = self.folder.path
        self._finished = standing(path).state == "finished"
        if self._finished and not (path / checkpoint.NAME).exists():
            accepted = "this run is finished and kept no checkpoint: read its metrics.csv, or delete it to run it again"
            raise InputError("folder", str(path), accepted)
        self.folder.restore(state)
        self.done = self._saved_round = state.done
        if not self._finished:
            self.folder.set_status("running", state.done)

    def ended(self, state: str, reason: str) -> None:
        """How the run ended, if not well. On a full disk there may be no room even for that."""
        if not self._finished:  # it has its result, whatever went wrong with looking at it
            with suppress(OSError):
                self.folder.log(f"{state}: {reason}")
                self.folder.set_status(state, self.done, reason)

    def evaluated(self, row: dict[str, float]) -> None:
        self.folder.append(row)

    def due(self, done: int) -> bool:
        """Whether a checkpoint should be written now, or the run should stop; tells who watches, too."""
        self.done = done
        now = time.monotonic()
        if now - self._status_at > _STATUS_EVERY:
            self._status_at = now
            with suppress(OSError):  # only for who watches
                self.folder.set_status("running", done, safe=False)
        if self._failure:
            self._fail()
        if self._request.asked:
            return True
        if self._writer and self._writer.is_alive():
            return False
        rounds = self._options.checkpoint_rounds
        wait = max(self._options.checkpoint_seconds, _PAUSES_BETWEEN * self._pause)
        return now - self._saved_at > wait or (rounds is not None and done - self._saved_round >= rounds)

    def save(self, state: RunState) -> None:
        """Begins to write a checkpoint; if somebody asked to stop, ends the run with it."""
        self.wait()
        if not state.server["x"].isfinite().all():
            # The checkpoint before stays the last good one; the next evaluation would say so.
            if self._request.asked:
                raise Stopped(f"stopped after round {state.done}, which diverged: no new checkpoint was written")
            return
        began = time.monotonic()
        snapshot = Snapshot(state)
        self._pause = time.monotonic() - began
        self._saved_round, self._saved_at = state.done, time.monotonic()
        self._writer = threading.Thread(target=self._write, args=(snapshot,), name="fedsum-checkpoint")
        self._writer.start()
        if self._request.asked and state.done < self._options.rounds:
            self.wait()
            raise Stopped(f"stopped after round {state.done}; go on with: fedsum resume {self.folder.path}")

    def _write(self, snapshot: Snapshot) -> None:
        began = time.monotonic()
        try:
            self.folder.save(snapshot)
            self.folder.log(f"checkpoint of round {snapshot.round} written in {time.monotonic() - began:.2f} s")
        except Exception as error:
            self._failure = error
        finally:
            snapshot.release()

    def wait(self) -> None:
        """Until the checkpoint being written is on the disk."""
        if self._writer:
            self._writer.join()
            self._writer = None
        if self._failure:
            self._fail()

    def _fail(self) -> None:
        error, self._failure = self._failure, None
        reason = getattr(error, "strerror", None) or str(error)
        raise OSError(
            f"the checkpoint of round {self._saved_round} could not be written ({reason}); the one before is kept:"
            f" make room, then go on with: fedsum resume {self.folder.path}"
        ) from error

    def diverged(self, state: RunState, reason: str) -> None:
        self.folder.log(reason)
        self.folder.set_status("diverged", state.done, reason)

    def finished(self, state: RunState, model: Any) -> None:
        """Leaves the model and a last checkpoint."""
        if self._finished:
            return
        if self._saved_round < state.done:
            self.save(state)
        self.wait()
        self.folder.save_model(model)
        (self.folder.path / checkpoint.PREVIOUS).unlink(missing_ok=True)
        self.folder.log(f"finished after round {state.done}, {state.training:.1f} s of training")
        self.folder.set_status("finished", state.done)
