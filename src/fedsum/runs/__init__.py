"""A run as a folder: one layout, one writer (RunFolder), one reader (Run); checkpoints; sweeps over runs."""

from .csv_rows import cut_back
from .execute import execute, train_in_folder
from .folder import RunFolder, read_toml
from .interrupt import Stopped
from .layout import CHECKPOINT, CONFIG, METRICS, SWEEP_FILE
from .pools import LocalPool, Pool, RayPool
from .run import OVER, Run, find_runs, read_runs
from .search import SEED, Best, best
from .sweep import PlannedRun, expand, not_begun, refuse_another, run_all, standings
from .tensorboard import TensorBoard

__all__ = [
    "CHECKPOINT",
    "CONFIG",
    "METRICS",
    "OVER",
    "SEED",
    "SWEEP_FILE",
    "Best",
    "LocalPool",
    "PlannedRun",
    "Pool",
    "RayPool",
    "Run",
    "RunFolder",
    "Stopped",
    "TensorBoard",
    "best",
    "cut_back",
    "execute",
    "expand",
    "find_runs",
    "not_begun",
    "read_runs",
    "read_toml",
    "refuse_another",
    "run_all",
    "standings",
    "train_in_folder",
]
