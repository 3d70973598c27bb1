"""Backups of a deployment's run folder, also while the server runs, and their restoration."""

import shutil
import time
from contextlib import closing
from pathlib import Path

from ...base.checks import InputError
from ...base.files import flush
from ...runs import CHECKPOINT, CONFIG, LOG, METRICS, STATUS, RunFolder
from ..storage import CLIENTS, PARTICIPATION, DamagedFile, read_checkpoint, read_header
from .requests import request_epoch

_OUTPUTS = (CONFIG, METRICS, PARTICIPATION, LOG, STATUS)
_ATTEMPTS = 20
"""a file of a client may be replaced while it is copied; then the newer checkpoint is copied"""


def write_backup(folder: Path, target: Path) -> int:
    """Copies the checkpoint, the files of its clients and the outputs into a new folder. Returns the rounds done.

    The copy is consistent and verified. metrics.csv and participation.csv may have more rows than the checkpoint; they
    are removed when the run is resumed.
    """
    if target.exists():
        raise InputError("target", str(target), "a folder that does not exist yet")
    if not (folder / CHECKPOINT).is_file():
        raise InputError("folder", str(folder), "the run folder of a deployment, with a checkpoint")
    part = target.with_name(f".{target.name}.part")
    for attempt in range(_ATTEMPTS):
        shutil.rmtree(part, ignore_errors=True)
        try:
            rounds = _copy_state(folder, part)
            break
        except (DamagedFile, FileNotFoundError) as error:
            if attempt == _ATTEMPTS - 1:
                shutil.rmtree(part, ignore_errors=True)
                raise InputError("folder", str(folder), f"an intact checkpoint ({error})") from error
            time.sleep(0.1)
    for name in _OUTPUTS:
        if (folder / name).exists():
            shutil.copy2(folder / name, part / name)
    for path in (*part.rglob("*"), part):
        flush(path)
    part.rename(target)
    flush(target.absolute().parent)
    return rounds


def restore_backup(backup: Path, folder: Path) -> tuple[int, Path | None]:
    """Restores a backup to the run folder. A run that is in the folder is moved aside.

    The server begins a new epoch when it resumes the run, because the clients' states are newer than the backup.

    Returns:
      The rounds done, and where the old folder is now.
    """
    try:
        state, _ = read_checkpoint(backup / CHECKPOINT)
    except DamagedFile as error:
        raise InputError("backup", str(backup), f"an intact backup ({error})") from error
    moved = None
    if folder.exists():
        with closing(RunFolder(folder)):  # refused while a server writes to it
            moved = folder.with_name(f"{folder.name}.replaced-{time.strftime('%Y%m%d-%H%M%S')}")
            folder.rename(moved)
    shutil.copytree(backup, folder)
    request_epoch(folder)
    return state.t, moved


def _copy_state(folder: Path, target: Path) -> int:
    (target / CLIENTS).mkdir(parents=True)
    shutil.copy2(folder / CHECKPOINT, target / CHECKPOINT)
    for name in read_header(target / CHECKPOINT).files.values():
        shutil.copy2(folder / CLIENTS / name, target / CLIENTS / name)
    state, _ = read_checkpoint(target / CHECKPOINT)
    return state.t
