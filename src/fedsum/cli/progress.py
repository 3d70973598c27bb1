"""Progress for people: the bars of a single run, or of a sweep's runs in one display."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ..base.metrics import LABELS
from ..runs import OVER, PlannedRun, Run
from ..training import Observer, RoundDone, Training
from .console import QUIET, err, figure

WATCHED = ("train_loss", "test_accuracy", "error")
"""metrics to show beside a bar and in tables of runs"""
_MOST_BARS = 12


def watched(metrics: Mapping[str, float]) -> str:
    """The watched metrics of an evaluation, in one line."""
    return "  ".join(f"{LABELS.get(name, name)} {figure(name, metrics[name])}" for name in WATCHED if name in metrics)


class RunProgress(Observer):
    """One run: rounds, loss, accuracy, tau and the time left."""

    def __init__(self, title: str, rounds: int, before: Run) -> None:
        self._progress, self._watched = _progress(), watched(before.last)
        self._bar = self._progress.add_task(title, total=rounds, completed=before.round, watched=self._watched)
        self._progress.start()

    def round_done(self, run: Training, done: RoundDone) -> None:
        if done.metrics:
            self._watched = watched(done.metrics)
        self._progress.update(self._bar, completed=done.round, watched=f"{self._watched}  tau {done.tau}")

    def closed(self) -> None:
        self._progress.stop()


class SweepProgress:
    """All runs of a sweep: rounds done in total, and a bar for each run that is running. An `on_look`."""

    def __init__(self, planned: Sequence[PlannedRun]) -> None:
        self._rounds = {run.name: run.spec.options.rounds for run in planned}
        self._progress = _progress()
        self._all = self._progress.add_task("all runs", total=sum(self._rounds.values()), watched="")
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._progress.stop()

    def __call__(self, runs: Mapping[str, Run]) -> None:
        over = {name for name, run in runs.items() if run.state in OVER}
        failed = sum(run.state == "failed" for run in runs.values())
        done = sum(self._rounds[name] if name in over else run.round for name, run in runs.items())
        counted = f"{len(over)} of {len(runs)} runs" + (f", {failed} failed" if failed else "")
        self._progress.update(self._all, completed=done, watched=counted)
        running = [name for name, run in runs.items() if run.state == "running"][:_MOST_BARS]
        for name in [name for name in self._bars if name not in running]:
            self._progress.remove_task(self._bars.pop(name))
        for name in running:
            if name not in self._bars:
                self._bars[name] = self._progress.add_task(name, total=self._rounds[name], watched="")
            self._progress.update(self._bars[name], completed=runs[name].round, watched=watched(runs[name].last))


def _progress() -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[watched]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=err, **QUIET)
