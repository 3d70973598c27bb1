"""The settings of one run: parsed once, passed on as an object, dumped into the run folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..algorithms import Algorithm
from ..base.checks import InputError, nearest
from ..base.toml_values import Table
from ..participation import Schedule
from ..tasks import BaseTask
from ..training import OPTIONS, Options
from .algorithm_spec import dump_algorithm, own_algorithm_table, parse_algorithm
from .schedule_spec import ScheduleSpec
from .task_spec import TaskSpec

PARTS = {
    "task": "the model, the loss and the clients' data: quadratic, digits, mnist, ..., or file.py:function",
    "algorithm": "FedSUM, ... (`fedsum list`), or file.py:class",
    "schedule": "which clients are active in each round: Uniform, ..., Trace with a path, or file.py:class",
}
ENVIRONMENT = "environment"
"""the table of config.toml with versions, device and command; not a setting"""
METRIC_DIRECTIONS = "metrics"
"""the table of config.toml with the directions of the task's own metrics, such as test_auc = "higher"; not a setting"""
DEPLOYMENT = "deployment"
"""the table of config.toml with the settings that only a deployment has"""
SETTINGS = (*PARTS, *(option.name for option in OPTIONS))
_RECORDED = (ENVIRONMENT, METRIC_DIRECTIONS)
"""tables of config.toml that are not settings"""


@dataclass(frozen=True)
class RunSpec:
    """Task, algorithm, schedule and options of one run, checked as far as possible without loading data.

    >>> table = {"task": "digits", "algorithm": "fedsum-cr", "schedule": {"name": "Uniform", "size": 5}}
    >>> spec = RunSpec.parse({**table, "rounds": 10, "local_steps": 2, "eta_l": 0.1})
    >>> spec.algorithm, spec.schedule.n, RunSpec.parse(spec.dump()) == spec
    (FedSUMCR(printed_average=False, divide_by_seen=False), 100, True)
    """

    task: TaskSpec
    algorithm: Algorithm
    schedule: ScheduleSpec
    options: Options
    algorithm_table: Table | None = field(default=None, compare=False)
    """the file's table for a user's own algorithm, which a function may have made; None: dump class and fields"""

    @classmethod
    def parse(cls, table: Mapping[str, Any]) -> "RunSpec":
        """From a table of settings; `dump` is the inverse."""
        if DEPLOYMENT in table:
            raise InputError("task", "flower", "these are settings of a deployed run; resume it with `flwr run`")
        for key, value in table.items():
            if key not in (*SETTINGS, *_RECORDED):
                raise InputError(key, value, f"no such setting; {nearest(key, SETTINGS)}")
        for part in PARTS:
            if part not in table:
                raise InputError(part, None, "is required")
        task, options = parse_task(table)
        schedule = ScheduleSpec.parse(table["schedule"], task.clients)
        schedule.refuse_short(options.rounds)
        algorithm = table["algorithm"]
        return cls(task, parse_algorithm(algorithm), schedule, options, own_algorithm_table(algorithm))

    @classmethod
    def of(cls, task: BaseTask, algorithm: Algorithm, schedule: Schedule, options: Options) -> "RunSpec":
        """From Python objects. The run folder records this spec, with which a resumed run is compared."""
        schedule_spec = ScheduleSpec.of(schedule, options.rounds, options.seed)
        return cls(TaskSpec.of(task), algorithm, schedule_spec, options)

    def dump(self) -> Table:
        """A table of TOML types."""
        return {
            **self.options.dump(),
            "task": self.task.dump(),
            "algorithm": self.algorithm_table or dump_algorithm(self.algorithm, self.options.rounds),
            "schedule": self.schedule.dump(),
        }

    def with_clients(self, n: int) -> "RunSpec":
        """This spec with the number of clients of its task, once the task is made."""
        return replace(self, schedule=self.schedule.with_clients(n))


def parse_task(table: Mapping[str, Any]) -> tuple[TaskSpec, Options]:
    """The task and the options of a table of settings; its schedule and its algorithm are not read."""
    if "task" not in table:
        raise InputError("task", None, "is required")
    options = Options.parse({key: value for key, value in table.items() if key not in (*PARTS, *_RECORDED)})
    return TaskSpec.parse(table["task"]), options
