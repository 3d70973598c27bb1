"""The one layout of a run's folder."""

from pathlib import Path

CONFIG = "config.toml"
"""every setting, and the environment in which the run began"""
METRICS = "metrics.csv"
"""one row per evaluation"""
STATUS = "status.toml"
"""state, rounds done, reason"""
LOG = "log"
MODEL = "model.safetensors"
"""the final model"""
CHECKPOINT = "checkpoint.safetensors"
PREVIOUS_CHECKPOINT = "checkpoint.previous.safetensors"
BROKEN_CHECKPOINT = "checkpoint.broken.safetensors"
LOCK = ".lock"
"""held by the process that writes to the folder"""
SWEEP_FILE = "sweep.toml"
"""in the folder of a sweep: the settings that its runs come from"""


def is_run(folder: Path) -> bool:
    """A run has a config, and beside it a status or a lock; many other things have a config.toml."""
    return (folder / CONFIG).is_file() and any((folder / name).exists() for name in (STATUS, LOCK))
