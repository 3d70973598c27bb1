"""Display names: one spelling per name, whatever a file's spelling."""

from collections.abc import Mapping
from typing import Any

from ..algorithms import ALGORITHMS
from ..base.registry import registered
from .algorithm_spec import parse_algorithm
from .schedule_spec import NAMED_SCHEDULES
from .task_spec import TASKS


def display_name(part: str, name: str) -> str:
    """The name of a task, an algorithm or a schedule in folder names and tables; unknown names are unchanged.

    >>> display_name("algorithm", "fedsumcr"), display_name("schedule", "uniform"), display_name("task", "CIFAR-10")
    ('FedSUM-CR', 'Uniform', 'cifar10')
    """
    registries: dict[str, Mapping[str, object]]
    registries = {"task": TASKS, "algorithm": ALGORITHMS, "schedule": NAMED_SCHEDULES}
    spelling = registered(registries.get(part, {}), name)
    if spelling is None:
        return name
    return ALGORITHMS[spelling].label if part == "algorithm" else spelling


def display_label(part: str, table: Mapping[str, Any]) -> str:
    """The display name of a table with a name; for an algorithm on top of another one, the label of both.

    >>> display_label("algorithm", {"name": "ServerOpt", "algorithm": "fedsum", "optimiser": "adam"})
    'FedSUM + Adam'
    """
    if part == "algorithm" and "algorithm" in table:
        return parse_algorithm(dict(table)).label
    return display_name(part, str(table.get("name", "")))
