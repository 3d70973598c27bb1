"""A server that reads its clients' state files and checks y = sum of all h_i after each round."""

import csv
import os
import signal
from contextlib import suppress
from pathlib import Path

import torch

from fedsum.flower import server_app
from fedsum.flower.journal import Journal
from fedsum.flower.storage import ClientStore, server_checkpoint

from .task import task

STATE = Path(os.environ["FEDSUM_TEST_STATE"])


def check(ledger, outcome):
    state = ledger.state
    if "y" not in state.server:
        return
    versions = [ClientStore(STATE, state.job, i).read().find(last.version) for i, last in state.last.items()]
    if None in versions:  # a client whose files were damaged, and that was not able to say so yet
        return
    total = sum((version.state["h"].double() for version in versions), torch.zeros_like(state.server["y"]))
    away = float((state.server["y"] - total).norm() / state.server["y"].norm())
    path = STATE / f"sums-{state.job}.csv"
    with path.open("a", newline="") as file:
        csv.writer(file).writerow([state.t, state.epoch, len(outcome.merged), away])


save = Journal.save


def killed_once(self, ledger, changed, attendance):
    """Killed between merge and checkpoint, in the round that a file names."""
    path = STATE / "kill-server-in"
    if path.exists() and int(path.read_text()) == ledger.state.t - 1 and changed:
        path.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    save(self, ledger, changed, attendance)


write_checked = server_checkpoint.write_checked


def on_a_full_disk(path, tensors, metadata):
    """The disk becomes full just before a checkpoint is written, if a file says so: it names the file that grows."""
    if (STATE / "fill-disk").exists():
        with suppress(OSError), open((STATE / "fill-disk").read_text(), "ab", buffering=0) as filler:
            while True:
                filler.write(bytes(512))
    write_checked(path, tensors, metadata)


Journal.save, server_checkpoint.write_checked = killed_once, on_a_full_disk

app = server_app(task, on_round=check)
