"""Run folders, with one writer (RunFolder) and one reader (Run); checkpoints, sweeps and packed files."""

from .csv_truncation import truncate_after
from .directions import directions
from .execute import execute, train_in_folder
from .layout import BROKEN_CHECKPOINT, CHECKPOINT, CONFIG, LOG, METRICS, PREVIOUS_CHECKPOINT, STATUS, SWEEP_FILE
from .metric_choice import check_metric
from .pack import pack
from .packed_file import is_packed
from .pools import LocalPool, Pool, RayPool
from .run_reader import OVER, Run, find_runs
from .run_source import open_runs, read_runs
from .run_writer import RunFolder, read_toml
from .search import SEED, SEEDS, Best, Combination, best, best_per_combination
from .stop_requests import Stopped
from .sweep import (
    PlannedRun,
    expand,
    first_settings,
    not_begun,
    planned_names,
    planned_parts,
    read_planned,
    read_results,
    refuse_another,
    run_all,
)
from .tensorboard import TensorBoard
from .tuning import Search, already_there

__all__ = [
    "BROKEN_CHECKPOINT",
    "CHECKPOINT",
    "CONFIG",
    "LOG",
    "METRICS",
    "OVER",
    "PREVIOUS_CHECKPOINT",
    "SEED",
    "SEEDS",
    "STATUS",
    "SWEEP_FILE",
    "Best",
    "Combination",
    "LocalPool",
    "PlannedRun",
    "Pool",
    "RayPool",
    "Run",
    "RunFolder",
    "Search",
    "Stopped",
    "TensorBoard",
    "already_there",
    "best",
    "best_per_combination",
    "check_metric",
    "directions",
    "execute",
    "expand",
    "find_runs",
    "first_settings",
    "is_packed",
    "not_begun",
    "open_runs",
    "pack",
    "planned_names",
    "planned_parts",
    "read_planned",
    "read_results",
    "read_runs",
    "read_toml",
    "refuse_another",
    "run_all",
    "train_in_folder",
    "truncate_after",
]
