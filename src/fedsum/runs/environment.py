"""The environment of a run, on which its results may depend: versions, device, git state, command."""

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

LOGGED_CHANGES = ("fedsum", "torch", "numpy", "device")
"""a resumed run logs changes of these entries, because results may then not be bit-identical"""


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
    """The commit of the source, with " changed" appended if there are uncommitted changes; empty without git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(source), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        return commit + (" changed" if commit and git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
