"""The files in a run's folder."""

from pathlib import Path

CONFIG = "config.toml"
"""every setting, and the environment in which the run began"""
METRICS = "metrics.csv"
"""one row per evaluation"""
CLIENTS = "clients.csv"
"""with `per_client`: one row per client, at the last evaluation"""
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
"""in a sweep's folder: the settings of the sweep"""


def is_run(folder: Path) -> bool:
    """Whether a folder is a run. A config alone does not prove it, because other programs write a config.toml too."""
    return (folder / CONFIG).is_file() and any((folder / name).exists() for name in (STATUS, LOCK))
