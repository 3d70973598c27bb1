"""What a result may depend on besides its settings: versions, device, git state, command."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from ..base.toml_values import Table
from ..version import __version__

NOTED = ("fedsum", "torch", "numpy", "device")
"""a change of one of these between two parts of a run is logged: bits may differ"""


def environment(device: torch.device) -> Table:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    table = {
        "fedsum": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": name,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "started": now(),
    }
    git = git_state(Path(__file__).parents[1])
    return table | ({"git": git} if git else {})


def git_state(source: Path) -> str:
    """The commit of the source, and " changed" if the source was changed since; empty where there is no git."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(source), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        return commit + (" changed" if commit and git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
