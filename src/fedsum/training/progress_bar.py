"""A progress bar for simulate(), in terminals and notebooks."""

# mypy: allow-untyped-calls
import sys
import time

from ..base.metrics import LABELS, is_percent
from .observer import Observer, RoundDone, Training
from .ranks import joined_ranks

_SHOWN = ("train_loss", "test_accuracy", "error")
_START_AFTER = 0.5
"""seconds; a shorter run shows no bar"""
_UPDATE_EVERY = 0.25
"""seconds between updates"""


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")


def shows_progress() -> bool:
    """Whether a bar is drawn by default: in a notebook, or if standard output is a terminal; by one rank only."""
    return joined_ranks().first and (in_notebook() or sys.stdout.isatty())


class ProgressBar(Observer):
    """Rounds done, and the latest evaluation."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._updated, self._metrics = 0.0, ""
        self._bar: _TerminalBar | _NotebookLine | None = None

    def round_done(self, run: Training, done: RoundDone) -> None:
        if done.metrics:
            self._metrics = "  ".join(_text(name, done.metrics[name]) for name in _SHOWN if name in done.metrics)
        now = time.monotonic()
        if now - self._began < _START_AFTER or now - self._updated < _UPDATE_EVERY:
            return
        self._updated = now
        if self._bar is None:
            self._bar = (_NotebookLine if in_notebook() else _TerminalBar)(run.algorithm.label, run.options.rounds)
        self._bar.update(done.round, self._metrics)

    def closed(self) -> None:
        if self._bar is not None:
            self._bar.close()


class _TerminalBar:
    """rich's bar on standard error; it disappears at the end."""

    def __init__(self, label: str, rounds: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        metrics = TextColumn("{task.fields[metrics]}")
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), metrics, TimeRemainingColumn())
        console = Console(stderr=True)
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task(label, total=rounds, metrics="")
        self._progress.start()

    def update(self, done: int, metrics: str) -> None:
        self._progress.update(self._task, completed=done, metrics=metrics)

    def close(self) -> None:
        self._progress.stop()


class _NotebookLine:
    """A line below the cell that is rewritten. Bars of widgets would need another package."""

    def __init__(self, label: str, rounds: int) -> None:
        from IPython.display import HTML, display

        self._label, self._rounds, self._html = label, rounds, HTML
        self._line = display(HTML(""), display_id=True)

    def update(self, done: int, metrics: str) -> None:
        bar = f'<progress value="{done}" max="{self._rounds}"></progress>'
        self._line.update(self._html(f"{self._label} {bar} {done}/{self._rounds} {metrics}"))

    def close(self) -> None:
        self._line.update(self._html(""))


def _text(name: str, value: float) -> str:
    return f"{LABELS[name]} {value:.1%}" if is_percent(name) else f"{LABELS[name]} {value:.2g}"
