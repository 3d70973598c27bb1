"""Progress for people: a single run, or a sweep's runs in one display."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ..base.metrics import LABELS
from ..cli.console import QUIET, err, figure
from ..simulate import RoundDone
from .standing import OVER, Standing
from .sweep import Planned

_SHOWN = ("train_loss", "test_accuracy", "error")
_MOST_BARS = 12


def seen(metrics: Mapping[str, float]) -> str:
    """The figures worth watching."""
    return "  ".join(f"{LABELS.get(name, name)} {figure(name, metrics[name])}" for name in _SHOWN if name in metrics)


class RunDisplay:
    """One run: rounds, loss, accuracy, tau and the time left. An `on_round`."""

    def __init__(self, title: str, rounds: int, done: int, last: Mapping[str, float]) -> None:
        self._progress = _progress()
        self._bar = self._progress.add_task(title, total=rounds, completed=done, seen=seen(last))
        self._seen = seen(last)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._progress.stop()

    def __call__(self, done: RoundDone) -> None:
        if done.metrics:
            self._seen = seen(done.metrics)
        self._progress.update(self._bar, completed=done.round, seen=f"{self._seen}  tau {done.tau}")


class SweepDisplay:
    """All runs of a sweep: rounds done of all of them, and a bar for each that is running. An `on_look`."""

    def __init__(self, runs: Sequence[Planned]) -> None:
        self._rounds = {run.name: int(run.table["rounds"]) for run in runs}
        self._progress = _progress()
        self._all = self._progress.add_task("all runs", total=sum(self._rounds.values()), seen="")
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._progress.stop()

    def __call__(self, stands: Mapping[str, Standing]) -> None:
        over = {name: stand for name, stand in stands.items() if stand.state in OVER}
        failed = sum(stand.state == "failed" for stand in stands.values())
        done = sum(self._rounds[name] if name in over else stand.round for name, stand in stands.items())
        counted = f"{len(over)} of {len(stands)} runs" + (f", {failed} failed" if failed else "")
        self._progress.update(self._all, completed=done, seen=counted)
        running = [name for name, stand in stands.items() if stand.state == "running"][:_MOST_BARS]
        for name in [name for name in self._bars if name not in running]:
            self._progress.remove_task(self._bars.pop(name))
        for name in running:
            if name not in self._bars:
                self._bars[name] = self._progress.add_task(name, total=self._rounds[name], seen="")
            stand = stands[name]
            self._progress.update(self._bars[name], completed=stand.round, seen=seen(stand.last))


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[seen]}"))
    return Progress(*columns, TimeRemainingColumn(), console=err, **QUIET)
