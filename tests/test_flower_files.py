"""Damaged, missing and changed files of a deployment, on both sides."""

import errno
import re
import shutil
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import pytest
import torch
from test_flower_server import TASK, N, federation, in_a_server_app, log  # noqa: F401

from fedsum import MIFA, Explicit, FedSUM, InputError
from fedsum.flower import Ledger
from fedsum.flower.journal import Journal
from fedsum.flower.storage import DamagedFile, read_checkpoint
from fedsum.flower.storage.checked_file import read_checked, write_checked


def flip(path, position=-3):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:100])


def emptied(path):
    path.write_bytes(b"")


@pytest.mark.parametrize(("damage", "words"), [(flip, "its checksum is wrong"), (cut, "cannot be read"), (emptied, "")])
def test_a_damaged_clients_state_is_a_lost_state(damage, words, tmp_path, caplog):
    """Row: a client's state is deleted or damaged => a checksum finds the damage. The client replies *lost*, see
    [Lost client states](protocol.md#lost-client-states).
    """

    def on_round(ledger, outcome):
        if ledger.state.t == 3:
            for file in (tmp_path / "clients" / ledger.state.job / "client-2").glob("*.safetensors"):
                damage(file)

    ledger, _ = federation(tmp_path, FedSUM(), on_round=on_round)
    assert "client 2 has lost its state; epoch 1 begins" in log(tmp_path)
    assert "this client's state counts as lost" in caplog.text
    assert words in caplog.text
    assert ledger.state.epoch == 1


def stopped_run(folder, algorithm=None, **given):
    """A run that stopped after 4 of 6 rounds, and the final state of the same run without a stop."""
    algorithm = algorithm or FedSUM()
    whole, _ = federation(folder / "whole", algorithm, **given)
    federation(folder, algorithm, rounds=4, **given)
    return whole


def other_format(path):
    """One bit of the format's number. Such a file looks like one of another version of fedsum."""
    content = path.read_bytes()
    flip(path, content.index(b"format") + content[content.index(b"format") :].index(b"4"))


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink, emptied, other_format])
def test_a_damaged_checkpoint_is_replaced_by_the_previous_one(damage, tmp_path):
    """Row: the server's checkpoint is damaged or missing => the previous checkpoint is used, with a line in the
    log. If it is damaged too, the run is refused; restore a backup.
    """
    whole = stopped_run(tmp_path)
    damage(tmp_path / "run" / "checkpoint.safetensors")
    ledger, _ = federation(tmp_path, FedSUM())
    assert "continuing from the previous checkpoint, after round 4" in log(tmp_path)
    assert (damage is Path.unlink) == ("the file is now checkpoint.broken.safetensors" not in log(tmp_path))
    assert torch.equal(ledger.state.server["y"], whole.state.server["y"])


@pytest.mark.parametrize(("algorithm", "on_loss"), [(MIFA(), "reset"), (FedSUM(), "table")], ids=repr)
def test_the_previous_checkpoint_has_the_files_of_its_clients(algorithm, on_loss, tmp_path):
    """Also those of clients that were merged in neither of the last two rounds.

    Row: the server's checkpoint is damaged or missing.
    """

    def stop(ledger, outcome):
        if ledger.state.t == 4:
            raise KeyboardInterrupt

    given = {"schedule": Explicit(N, [[0, 1], [1], [2], [0, 1], [3], [0, 2]]), "on_loss": on_loss}
    whole, _ = federation(tmp_path / "whole", algorithm, **given)
    with pytest.raises(KeyboardInterrupt):
        federation(tmp_path, algorithm, on_round=stop, **given)
    flip(tmp_path / "run" / "checkpoint.safetensors")
    ledger, _ = federation(tmp_path, algorithm, **given)
    assert "continuing from the previous checkpoint, after round 3" in log(tmp_path)
    assert torch.equal(ledger.state.server["x"], whole.state.server["x"])


def test_a_checksum_covers_names_numbers_and_tensors(tmp_path):
    path = tmp_path / "state.safetensors"
    write_checked(path, {"h": torch.ones(3), "c": torch.ones(3)}, {"serial": "17"})
    sound = path.read_bytes()
    for old, new in ((b'"17"', b'"18"'), (b'"h"', b'"g"'), (b"F32", b"I32"), (b"serial", b"serjal"), (b"[3]", b"[2]")):
        assert old in sound
        path.write_bytes(sound.replace(old, new))
        with pytest.raises(DamagedFile):
            read_checked(path)
    path.write_bytes(sound)
    assert read_checked(path)[1] == {"serial": "17"}


def test_every_flipped_bit_is_found(tmp_path):
    """Row: a client's state is deleted or damaged.

    Row: the server's checkpoint is damaged or missing.
    """
    ledger, _ = federation(tmp_path, FedSUM(), rounds=2)
    (state,) = (tmp_path / "clients" / ledger.state.job / "client-2").glob("pending*")
    for path, read in (
        (state, read_checked),
        (tmp_path / "run" / "checkpoint.safetensors", read_checkpoint),
    ):
        sound = path.read_bytes()
        for position in range(len(sound)):
            path.write_bytes(sound)
            flip(path, position)
            with pytest.raises(DamagedFile):
                read(path)


@pytest.mark.parametrize(
    ("damage", "words"),
    [(flip, "is damaged: its checksum is wrong"), (cut, "cannot be read .*"), (Path.unlink, "cannot be read .*")],
)
def test_a_damaged_client_file_of_the_server_is_found(damage, words, tmp_path):
    """Row: the server's checkpoint is damaged or missing."""
    stopped_run(tmp_path, MIFA())
    for path in (tmp_path / "run" / "clients").glob("0-*"):
        damage(path)
    with pytest.raises(InputError, match=rf"{words}; restore a backup with `fedsum flower"):
        federation(tmp_path, MIFA())


def test_a_run_without_any_checkpoint_is_refused(tmp_path):
    """Row: the server's checkpoint is damaged or missing."""
    federation(tmp_path, FedSUM(), rounds=2)
    for path in (tmp_path / "run").glob("checkpoint*"):
        path.unlink()
    before = (tmp_path / "run" / "participation.csv").read_bytes()
    with pytest.raises(InputError, match=r"has a run, but no checkpoint; restore a backup with `fedsum"):
        federation(tmp_path, FedSUM())
    assert (tmp_path / "run" / "participation.csv").read_bytes() == before


def test_a_kill_between_the_two_checkpoints_loses_nothing(tmp_path, monkeypatch):
    """Row: the server app is killed => call `flwr run` again with the same `folder`. The run resumes from the
    checkpoint. Clients answer the repeated round with their saved replies.
    """
    whole = stopped_run(tmp_path)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(
            "fedsum.flower.storage.server_checkpoint.write_checked", killed
        )  # after the previous checkpoint is linked
        with pytest.raises(KeyboardInterrupt):
            federation(tmp_path, FedSUM())
    ledger, _ = federation(tmp_path, FedSUM())
    assert torch.equal(ledger.state.server["y"], whole.state.server["y"])
    assert "previous checkpoint" not in log(tmp_path)


GARBLED = {
    "a truncated row": (lambda text: text.replace(b"\n2,1\n", b"\n2\n"), 1),
    "a row that ends within a number": (lambda text: text.removesuffix(b"3\n"), 1),
    "a wrong column": (lambda text: text.replace(b"round,client", b"round,node"), 4 * N),
    "no header": (lambda text: text.removeprefix(b"round,client\n"), 4 * N),
    "binary garbage": (lambda text: bytes(range(256)) * 20 + b"\n" + text, 4 * N),
    "binary garbage at the end": (lambda text: text + b"\x00\xff\xfe\n9,\x80", 0),
    "an empty file": (lambda text: b"", 4 * N),
}


def test_a_garbled_participation_file_is_repaired(tmp_path):
    """Row: `participation.csv` or `metrics.csv` is damaged => the run resumes, because it reads nothing from them.
    Unreadable lines are removed, and the original file is kept. The log says so, and how many rows are missing.
    """
    federation(tmp_path / "whole", FedSUM(), rounds=4)
    for case, (damage, missing) in GARBLED.items():
        folder = tmp_path / case
        shutil.copytree(tmp_path / "whole", folder)
        path = folder / "run" / "participation.csv"
        content, intact = damage(path.read_bytes()), path.read_text().splitlines()
        path.write_bytes(content)
        ledger, _ = federation(folder, FedSUM(), rounds=5)
        assert ledger.state.t == 5, case
        header, *rows = path.read_text().splitlines()
        assert header == "round,client", case
        assert len(rows) == 5 * N - missing, case
        assert set(intact[1:]) >= set(rows[:-N]), case
        line = f"participation.csv lacks {missing} of the {4 * N} rows of the rounds done"
        assert (line in log(folder)) == bool(missing), case
        damaged = path.with_name("participation.damaged.csv")
        assert not damaged.exists() or damaged.read_bytes() == content, case
        assert damaged.exists() == (case not in ("a row that ends within a number", "an empty file")), case


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"seed": 1}, "seed 0, not 1"),
        ({"local_steps": 3}, "local_steps 2, not 3"),
        ({"eta_l": 0.04}, r"eta_l\(0\) 0.05, not 0.04"),
        ({"eta_l": lambda t: 0.05 if t < 1 else 0.01}, r"eta_l\(1\) 0.05, not 0.01"),
        ({"eta_g": 0.5}, "eta_g 1.0, not 0.5"),
        ({"batch_size": 7}, "batch_size 128, not 7"),
        ({"clip_norm": 1.0}, "clip_norm None, not 1.0"),
        ({"weight_decay": 0.1}, "weight_decay 0.0, not 0.1"),
        ({"on_loss": "table"}, "on_loss 'reset', not 'table'"),
    ],
)
def test_a_change_of_the_results_is_refused_by_field(changed, field, tmp_path):
    """Row: a setting that changes results is changed on resume => refused, with the setting and both values."""
    federation(tmp_path, FedSUM(), rounds=2)
    before = (tmp_path / "run" / "checkpoint.safetensors").read_bytes()
    with pytest.raises(InputError, match=f"holds a run with {field}; use the same value, or another folder"):
        federation(tmp_path, FedSUM(), **changed)
    assert (tmp_path / "run" / "checkpoint.safetensors").read_bytes() == before
    assert re.search(f"refused to start: .*holds a run with {field}", log(tmp_path))  # where an operator looks
    ledger, _ = federation(tmp_path, FedSUM(), rounds=4, quorum=2, deadline=3.0, grace=1.0)
    assert ledger.state.t == 4


@pytest.mark.parametrize(
    ("n", "x0", "field"),
    [
        (N + 1, TASK.init(0), f"clients {N}, not {N + 1}"),
        (N, torch.zeros(9).double(), "parameters 4, not 9"),
        (N, TASK.init(0).float(), "dtype 'float64', not 'float32'"),
    ],
)
def test_another_model_or_number_of_clients_is_refused(n, x0, field, tmp_path):
    """Row: a setting that changes results is changed on resume."""
    ledger, _ = federation(tmp_path, FedSUM(), rounds=1)
    other = Ledger(FedSUM(), x0, n, ledger.options, ledger.rules)
    with (
        closing(Journal(tmp_path / "run")) as journal,
        pytest.raises(InputError, match=f"holds a run with {field}; use the same value, or another folder"),
    ):
        journal.resume(other)


def test_a_full_disk_is_the_reason_in_the_status(tmp_path, monkeypatch):
    """Row: the server's disk is full => the run fails, and the status says why. Free space, then call `flwr run`
    again.
    """
    federation(tmp_path, FedSUM(), rounds=2)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        for name in (
            "fedsum.flower.storage.checked_file.save_file",
            "fedsum.base.files.flush",
            "fedsum.runs.RunFolder.log",
        ):
            patch.setattr(name, full)
        with pytest.raises(OSError, match="No space left"):
            federation(tmp_path, FedSUM())
    status = tomllib.loads((tmp_path / "run" / "status.toml").read_text())
    assert status["state"] == "failed"
    assert status["reason"].startswith("the server's disk is full: free space, then call `flwr run` again")
    ledger, _ = federation(tmp_path, FedSUM())
    assert ledger.state.t == 6


FULL_DISK = """
import errno
import sys
import tomllib
from contextlib import closing
from pathlib import Path

from fedsum.flower.journal import Journal

folder = Path(sys.argv[1])
with closing(Journal(folder / "run")) as journal:
    journal.set_status("running", 1)
    try:
        with (folder / "filler").open("wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
    except OSError as error:
        assert error.errno == errno.ENOSPC
    journal.set_status("failed", 1, "the server's disk is full " + "x" * 9000)
print(tomllib.loads((folder / "run" / "status.toml").read_text())["reason"][:25])
"""


@pytest.mark.slow
def test_a_really_full_disk_is_the_reason_in_the_status(tmp_path):
    """Row: the server's disk is full."""
    (tmp_path / "disk").mkdir()
    script = tmp_path / "full.py"
    script.write_text(FULL_DISK)
    command = f"mount -t tmpfs -o size=256k none {tmp_path / 'disk'} && {sys.executable} {script} {tmp_path / 'disk'}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", command], capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"needs the right to mount: {done.stderr.strip()}")
    assert done.stdout.strip() == "the server's disk is full", done.stderr
