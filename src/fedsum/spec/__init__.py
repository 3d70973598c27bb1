"""Settings: a RunSpec, parsed from a table and dumped to one; TOML files and `--set`."""

from .algorithm_spec import dump_algorithm, parse_algorithm
from .display_names import display_label, display_name
from .imported import code_confirmed_by, imported
from .run_spec import DEPLOYMENT, ENVIRONMENT, METRIC_DIRECTIONS, PARTS, SETTINGS, RunSpec, parse_task
from .same_run import first_difference
from .schedule_spec import ScheduleSpec
from .task_spec import TASKS, TaskSpec
from .toml_files import SWEEP, assigned, overlaid, read_settings, toml_text, with_settings

__all__ = [
    "DEPLOYMENT",
    "ENVIRONMENT",
    "METRIC_DIRECTIONS",
    "PARTS",
    "SETTINGS",
    "SWEEP",
    "TASKS",
    "RunSpec",
    "ScheduleSpec",
    "TaskSpec",
    "assigned",
    "code_confirmed_by",
    "display_label",
    "display_name",
    "dump_algorithm",
    "first_difference",
    "imported",
    "overlaid",
    "parse_algorithm",
    "parse_task",
    "read_settings",
    "toml_text",
    "with_settings",
]
