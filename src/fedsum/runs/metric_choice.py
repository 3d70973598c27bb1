"""The metric that a search selects by, checked before anything is trained."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from ..base.checks import InputError, nearest
from ..base.metrics import Better
from ..tasks import directions_of
from ..training import Observer, Training, train
from .directions import directions
from .run_reader import Run
from .search import check_direction
from .sweep import PlannedRun


def check_metric(planned: Sequence[PlannedRun], by: str, better: Better | None) -> Better:
    """The direction of the metric `by`. Refuses a metric that no task of these runs logs, or without a direction.

    The initial model is evaluated once per task, unless a run in its folder has been evaluated already.
    """
    known: set[str] = set()
    for run in {str(run.spec.task.dump()): run for run in reversed(planned)}.values():
        row, stated = _first_evaluation(run)
        if by in row:
            return check_direction(by, stated, better)
        known |= row.keys() - {"round"}
    raise InputError("by", by, nearest(by, known))


class _FirstEvaluation(Observer):
    """Ends a run after the evaluation of its initial model."""

    class Done(Exception):
        pass

    row: Mapping[str, float] = {}

    def evaluated(self, run: Training, row: dict[str, float]) -> None:
        self.row = row
        raise self.Done


def _first_evaluation(planned: PlannedRun) -> tuple[Mapping[str, float], Mapping[str, Better]]:
    """The metrics of the initial model, and the directions that the task states."""
    run = Run.read_or_new(planned.folder)
    if run.rows:
        return run.rows[0], directions([run])
    spec, observer = planned.spec, _FirstEvaluation()
    task = spec.task.make()
    options = replace(spec.options, engine="loop")  # the others start processes or compile
    with suppress(_FirstEvaluation.Done):
        train(task, spec.algorithm, spec.schedule.make(task.n), options, [observer])
    return observer.row, directions_of(task)
