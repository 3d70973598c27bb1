"""The observer that records a run in its folder: metrics after each evaluation, checkpoints in the background."""

import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import torch

from ..base.checks import InputError
from ..base.metrics import Better
from ..base.toml_values import Table
from ..spec import METRIC_DIRECTIONS, RunSpec
from ..tasks import directions_of
from ..training import History, Observer, RoundDone, Training
from . import checkpoint
from .checkpoint import Snapshot
from .layout import BROKEN_CHECKPOINT, CHECKPOINT, PREVIOUS_CHECKPOINT
from .run_reader import Run
from .run_writer import RunFolder, refuse_difference
from .stop_requests import Stopped, StopRequest, stop_requests

_STATUS_EVERY = 1.0
"""seconds between updates of the status"""
_PAUSES_BETWEEN = 20
"""minimum interval between checkpoints, in multiples of the last pause"""


@contextmanager
def recorded(
    path: str | Path, spec: RunSpec, device: torch.device, better: Mapping[str, Better], *, extend: bool = False
) -> Iterator["Recorder"]:
    """Yields the observer that records a run in its folder. If an exception ends the run, the status says why.

    `better` has the directions of the task's own metrics. With `extend`, the run in the folder may have fewer rounds.
    """
    config = spec.dump() | ({METRIC_DIRECTIONS: dict(better)} if better else {})
    with closing(RunFolder(path)) as folder, stop_requests() as request:
        if extend:
            refuse_without_checkpoint(folder.path)  # before its config has more rounds
        before = Run.read_or_new(folder.path)
        if before.state == "finished" and before.config.get("rounds", math.inf) < spec.options.rounds:
            folder.refuse_another_run(config, extend=extend)
            # Before the config has the new rounds: a process that is killed must not leave a finished run with them.
            folder.set_status("running", before.round)
        folder.claim(config, device, extend=extend)
        recorder = Recorder(folder, config, request)
        try:
            yield recorder
        except KeyboardInterrupt as stop:
            recorder.ended("stopped", str(stop))
            raise
        except Exception as error:
            recorder.ended("failed", " ".join(f"{error}".split()) or type(error).__name__)
            raise
        finally:
            recorder.wait()


def refuse_without_checkpoint(folder: Path) -> None:
    """Refuses to go on with a finished run whose checkpoint was deleted."""
    if Run.read_or_new(folder).state == "finished" and not (folder / CHECKPOINT).exists():
        accepted = (
            "this run is finished and has no checkpoint: read its metrics.csv, or delete the run to repeat it"
            " (a sweep keeps checkpoints with --keep)"
        )
        raise InputError("folder", str(folder), accepted)


class Recorder(Observer):
    """Appends metrics to the folder, updates its status and writes checkpoints in the background."""

    def __init__(self, folder: RunFolder, config: Table, request: StopRequest) -> None:
        self.folder, self._config, self._request = folder, config, request
        found = Run.read_or_new(folder.path)  # the status stays if the run fails before its checkpoint is loaded
        self._done, self._rounds, self._has_result = found.round, 0, found.state == "finished"
        self._saved_round, self._saved_at, self._pause = 0, time.monotonic(), 0.0
        self._status_at = 0.0
        self._writer: threading.Thread | None = None
        self._failure: Exception | None = None

    def restore(self, run: Training) -> None:
        """Loads the newest valid checkpoint, if there is one."""
        path, self._rounds = self.folder.path, run.options.rounds
        self._has_result = Run.read_or_new(path).state == "finished"
        refuse_without_checkpoint(path)
        loaded = self._load(run)
        run.ranks.from_first(lambda: loaded)
        if run.ranks.count > 1:
            self.folder.log(f"the clients are split over {run.ranks.count} processes")
        rule, rows = run.options.stop, run.state.rows
        stopped = bool(rule and rule.reason(rows, directions_of(run.task)))
        self._has_result &= run.state.done == self._rounds or stopped
        self._done = self._saved_round = run.state.done
        if not self._has_result:
            self.folder.set_status("running", run.state.done)

    def started(self, run: Training) -> None:
        self.folder.log(f"engine: {run.state.engine}")

    def evaluated(self, run: Training, row: dict[str, float]) -> None:
        self.folder.append(row)
        if run.state.served is not None:
            self.folder.write_clients(run.state.served)

    def round_done(self, run: Training, done: RoundDone) -> None:
        self._done = done.round
        # A diverged state is not saved, because it would replace a checkpoint from before the divergence.
        if not done.diverged and run.ranks.from_first(lambda: self._is_due(run)):
            self.save(run)

    def finished(self, run: Training, history: History) -> None:
        """Writes the model and the final checkpoint."""
        if self._has_result:
            return
        if self._saved_round < run.state.done:
            self.save(run)
        self.wait()
        self.folder.save_model(history.model(), history.x)
        (self.folder.path / PREVIOUS_CHECKPOINT).unlink(missing_ok=True)
        self.folder.log(f"finished after round {run.state.done}, {run.state.training_seconds:.1f} s of training")
        if history.reason:
            self.folder.log(history.reason)
        self.folder.set_status("finished", run.state.done, history.reason)
        self._has_result = True

    def diverged(self, run: Training, reason: str) -> None:
        self.folder.log(reason)
        self.folder.set_status("diverged", run.state.done, reason)
        self._has_result = True

    def ended(self, state: str, reason: str) -> None:
        """Records why the run stopped or failed. On a full disk this may fail too, and the error is ignored."""
        if not self._has_result:  # a later error does not change the status of a run with a result
            with suppress(OSError):
                self.folder.log(f"{state}: {reason}")
                self.folder.set_status(state, self._done, reason)

    def _is_due(self, run: Training) -> bool:
        """Whether a checkpoint is due or a stop was requested. Also updates the status."""
        now = time.monotonic()
        if now - self._status_at > _STATUS_EVERY:
            self._status_at = now
            with suppress(OSError):  # nothing depends on this status
                self.folder.set_status("running", self._done, safe=False)
        if self._failure:
            self._raise_failure()
        if self._request.requested:
            return True
        if self._writer and self._writer.is_alive():
            return False
        rounds = run.options.checkpoint_rounds
        wait = max(run.options.checkpoint_seconds, _PAUSES_BETWEEN * self._pause)
        return now - self._saved_at > wait or (rounds is not None and self._done - self._saved_round >= rounds)

    def save(self, run: Training) -> None:
        """Starts to write a checkpoint. If a stop was requested, waits for the checkpoint and raises `Stopped`."""
        self.wait()
        state, stop = run.state, run.ranks.from_first(lambda: self._request.requested)
        if not state.server["x"].isfinite().all():
            # The last checkpoint stays. The next evaluation reports the divergence.
            if stop:
                raise Stopped(f"stopped after round {state.done}, which diverged: no new checkpoint was written")
            return
        began = time.monotonic()
        snapshot = Snapshot(state, self._config, run.ranks.gathered({}))
        self._pause = time.monotonic() - began
        self._saved_round, self._saved_at = state.done, time.monotonic()
        self._writer = threading.Thread(target=self._write, args=(snapshot,), name="fedsum-checkpoint")
        self._writer.start()
        if stop and state.done < self._rounds:
            self.wait()
            raise Stopped(f"stopped after round {state.done}; resume with: {self.folder.way_to_resume}")

    def _write(self, snapshot: Snapshot) -> None:
        began = time.monotonic()
        try:
            self.folder.flush_metrics()  # the metrics must be on the disk before their checkpoint
            snapshot.write(self.folder.path)
            self.folder.log(f"checkpoint of round {snapshot.round} written in {time.monotonic() - began:.2f} s")
        except Exception as error:
            self._failure = error
        finally:
            snapshot.release()

    def wait(self) -> None:
        """Waits until the checkpoint being written is on the disk."""
        if self._writer:
            self._writer.join()
            self._writer = None
        if self._failure:
            self._raise_failure()

    def _raise_failure(self) -> None:
        error, self._failure = self._failure, None
        reason = getattr(error, "strerror", None) or str(error)
        raise OSError(
            f"the checkpoint of round {self._saved_round} could not be written ({reason}); the previous checkpoint is"
            f" intact: free disk space, then resume with: {self.folder.way_to_resume}"
        ) from error

    def _load(self, run: Training) -> Path | None:
        """Loads the newest valid checkpoint, if any, and truncates the metrics to its round. Returns its path."""
        folder, state, options = self.folder.path, run.state, run.options
        loaded = None
        newest, previous = folder / CHECKPOINT, folder / PREVIOUS_CHECKPOINT
        for path in (newest, previous):
            if not path.exists():
                continue
            try:
                checkpoint.load(path, state, self._refuse_edited, run.ranks.share)
            except InputError:
                raise
            except ValueError as error:
                self.folder.log(f"{path.name} cannot be used: {error}")
                if path == previous or not previous.exists():
                    accepted = f"{error}; no other checkpoint is valid: delete {folder} to start over"
                    raise InputError("checkpoint", str(path), accepted) from error
                # Renamed, because the next checkpoint would otherwise replace the valid previous checkpoint with it.
                path.replace(folder / BROKEN_CHECKPOINT)
                continue
            self.folder.log(f"resumed after round {state.done} from {path.name}")
            loaded = path.resolve()
            break
        # A run that is extended has evaluations near its former end that the longer run does not have.
        state.rows = [row for row in state.rows if options.evaluates(int(row["round"]))]
        _refuse_missed_stop(run)
        self.folder.rewrite_metrics(state.rows)
        return loaded

    def _refuse_edited(self, settings: Table) -> None:
        """Refuses a config that was edited by hand: the checkpoint has the settings of the rounds done."""
        refuse_difference(settings, self._config, self.folder.path, extend=True)


def _refuse_missed_stop(run: Training) -> None:
    """Refuses an extension if a longer run would have stopped before the former last round.

    The evaluations of `eval_last` can delay a stop by `patience`; the longer run does not have them.
    """
    rule, rows = run.options.stop, run.state.rows
    for end in range(1, len(rows)):
        if rule and (reason := rule.reason(rows[:end], directions_of(run.task))):
            raise InputError("stop", rule.dump(), f"with {run.options.rounds} rounds this run has {reason}")
