"""Progress bars of a single run, or of all runs of a sweep."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ..base.metrics import LABELS
from ..runs import OVER, PlannedRun, Run
from ..training import Observer, RoundDone, Training
from .console import PROGRESS_OPTIONS, err, format_metric

SHOWN_METRICS = ("train_loss", "test_accuracy", "error")
"""metrics beside a progress bar and in tables of runs"""
_MAX_BARS = 12


def metrics_line(metrics: Mapping[str, float]) -> str:
    """The metrics of an evaluation, in one line."""
    return "  ".join(
        f"{LABELS.get(name, name)} {format_metric(name, metrics[name])}" for name in SHOWN_METRICS if name in metrics
    )


class RunProgress(Observer):
    """One run: rounds, loss, accuracy, tau and the time left."""

    def __init__(self, title: str, rounds: int, previous: Run) -> None:
        self._progress, self._metrics = _progress(), metrics_line(previous.last)
        self._bar = self._progress.add_task(title, total=rounds, completed=previous.round, metrics=self._metrics)
        self._progress.start()

    def round_done(self, run: Training, done: RoundDone) -> None:
        if done.metrics:
            self._metrics = metrics_line(done.metrics)
        self._progress.update(self._bar, completed=done.round, metrics=f"{self._metrics}  tau {done.tau}")

    def closed(self) -> None:
        self._progress.stop()


class SweepProgress:
    """All runs of a sweep: a bar of all rounds, and one bar per running run. `run_all` calls it as `on_look`."""

    def __init__(self, planned: Sequence[PlannedRun]) -> None:
        self._rounds = {run.name: run.spec.options.rounds for run in planned}
        self._progress = _progress()
        self._total = self._progress.add_task("all runs", total=sum(self._rounds.values()), metrics="")
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._progress.stop()

    def __call__(self, runs: Mapping[str, Run]) -> None:
        complete = {name for name, run in runs.items() if run.state in OVER}
        failed = sum(run.state == "failed" for run in runs.values())
        done = sum(self._rounds[name] if name in complete else run.round for name, run in runs.items())
        summary = f"{len(complete)} of {len(runs)} runs" + (f", {failed} failed" if failed else "")
        self._progress.update(self._total, completed=done, metrics=summary)
        running = [name for name, run in runs.items() if run.state == "running"][:_MAX_BARS]
        for name in [name for name in self._bars if name not in running]:
            self._progress.remove_task(self._bars.pop(name))
        for name in running:
            if name not in self._bars:
                self._bars[name] = self._progress.add_task(name, total=self._rounds[name], metrics="")
            self._progress.update(self._bars[name], completed=runs[name].round, metrics=metrics_line(runs[name].last))


def _progress() -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[metrics]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=err, **PROGRESS_OPTIONS)
