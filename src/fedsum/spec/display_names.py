"""One spelling per name, however a file spells it."""

from collections.abc import Mapping

from ..algorithms import ALGORITHMS
from ..base.registry import registered
from .schedule_spec import NAMED_SCHEDULES
from .task_spec import TASKS


def display_name(part: str, name: str) -> str:
    """What a task, an algorithm or a schedule is called in folder names and tables; other names stay as they are.

    >>> display_name("algorithm", "fedsumcr"), display_name("schedule", "uniform"), display_name("task", "CIFAR-10")
    ('FedSUM-CR', 'Uniform', 'cifar10')
    """
    registries: dict[str, Mapping[str, object]]
    registries = {"task": TASKS, "algorithm": ALGORITHMS, "schedule": NAMED_SCHEDULES}
    known = registered(registries.get(part, {}), name)
    if known is None:
        return name
    return ALGORITHMS[known].label if part == "algorithm" else known
