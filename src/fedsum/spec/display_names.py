"""Display names: one spelling per name, whatever a file's spelling."""

from collections.abc import Mapping
from typing import Any

from ..algorithms import ALGORITHMS, FedSUM
from ..base.registry import registered
from .algorithm_spec import parse_algorithm
from .imported import code_confirmed_by
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

    Code that the table names is not imported, because the table may be from elsewhere: the label has its name.

    >>> display_label("algorithm", {"name": "ServerOpt", "algorithm": "fedsum", "optimiser": "adam"})
    'FedSUM + Adam'
    >>> display_label("algorithm", {"name": "ServerOpt", "algorithm": "my_methods.py:Mine", "optimiser": "adam"})
    'Mine + Adam'
    """
    if part != "algorithm" or "algorithm" not in table:
        return display_name(part, str(table.get("name", "")))
    wrapped = table["algorithm"]
    inner = display_label(part, wrapped if isinstance(wrapped, Mapping) else {"name": wrapped}).rpartition(":")[2]
    for separator, field in ((" + ", "optimiser"), (", ", "compressor")):
        name = _name(table.get(field))
        if ":" in name:
            return inner + separator + name.rpartition(":")[2]
    with code_confirmed_by(lambda name: False):
        # The wrapper's label begins with that of the algorithm. FedSUM takes its place, as every wrapper accepts it.
        return inner + parse_algorithm({**table, "algorithm": "FedSUM"}).label.removeprefix(FedSUM.label)


def _name(table: Any) -> str:
    return str(table.get("name", "") if isinstance(table, Mapping) else table or "")
