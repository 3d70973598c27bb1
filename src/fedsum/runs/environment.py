"""The environment of a run, on which its results may depend: versions, device, git state, command."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from ..base.toml_values import Table
from ..version import __version__

LOGGED_CHANGES = ("fedsum", "torch", "numpy", "device")
"""a resumed run logs changes of these entries, because results may then not be bit-identical"""
_SECRET = re.compile(
    r"--?(?:[\w-]+[-_])?(?:token|password|passwd|secret|key)(?P<value>=.*)?", re.IGNORECASE | re.DOTALL
)


def environment(device: torch.device) -> Table:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    table = {
        "fedsum": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": name,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "command": command(sys.argv),
        "started": now(),
    }
    git = git_state(Path(__file__).parents[1])
    return table | ({"git": git} if git else {})


def command(arguments: Sequence[str]) -> str:
    """The command line, without the values of options that hold a secret: reports and packed files contain it.

    >>> command(["/usr/bin/flwr-serverapp", "--token", "5e1f", "--api-key=9b", "--rounds", "5"])
    'flwr-serverapp --token ... --api-key=... --rounds 5'
    """
    words, hide = [Path(arguments[0]).name], False
    for argument in arguments[1:]:
        option = _SECRET.fullmatch(argument)
        if option and option["value"]:
            words.append(argument.partition("=")[0] + "=...")
        else:
            words.append("..." if hide else argument)
        hide = option is not None and not option["value"]
    return " ".join(words)


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
