"""The recorder's counterpart on every other rank of a run on several processes."""

from pathlib import Path

from ..training import History, Observer, RoundDone, Training
from . import checkpoint
from .checkpoint import client_states
from .stop_requests import Stopped


class Follower(Observer):
    """Loads the checkpoint that rank 0 loads, and sends rank 0 this rank's client states for each new one.

    It writes nothing. All ranks must see the run's folder under the same path.
    """

    def __init__(self) -> None:
        self._saved_round = 0

    def restore(self, run: Training) -> None:
        path: Path | None = run.ranks.from_first(lambda: None)
        if path is not None:
            checkpoint.load(path, run.state, share=run.ranks.share)
            run.state.rows = [row for row in run.state.rows if run.options.evaluates(int(row["round"]))]
        self._saved_round = run.state.done

    def round_done(self, run: Training, done: RoundDone) -> None:
        if not done.diverged and run.ranks.from_first(lambda: False):
            self._save(run)

    def finished(self, run: Training, history: History) -> None:
        if self._saved_round < run.state.done:
            self._save(run)

    def _save(self, run: Training) -> None:
        state, stop = run.state, run.ranks.from_first(lambda: False)
        if state.server["x"].isfinite().all():
            run.ranks.gathered(client_states(state))
            self._saved_round = state.done
        if stop and state.done < run.options.rounds:
            raise Stopped(f"rank {run.ranks.rank} stopped after round {state.done}")
