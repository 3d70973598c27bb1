"""`fedsum flower status`, `evict`, `readmit`, `backup` and `restore`, with a grid in this process."""

import json
import shutil
from contextlib import closing

import pytest
import torch
from test_flower_commands import fedsum
from test_flower_server import LocalGrid, N, federation, in_a_server_app, log  # noqa: F401

from fedsum import MIFA, FedSUM, InputError, Trace
from fedsum.flower import deployment_status, make_request, restore_backup, write_backup
from fedsum.flower.journal import Journal
from fedsum.flower.operators import pending_requests
from fedsum.flower.storage import ClientStore


def status_of(folder, monkeypatch, capsys):
    capsys.readouterr()
    assert fedsum(monkeypatch, "flower", "status", folder / "run", "--json") == 0
    return json.loads(capsys.readouterr().out)


def gap(folder, ledger):
    """||y - sum h|| / ||y||, with h from the clients' files."""
    state = ledger.state
    versions = [ClientStore(folder / "clients", state.job, i).read().find(m.version) for i, m in state.last.items()]
    total = sum(version.state["h"].double() for version in versions)
    return float((state.server["y"] - total).norm() / state.server["y"].norm())


@pytest.mark.parametrize("on_loss", ["reset", "table"])
def test_a_client_is_evicted_and_readmitted(on_loss, tmp_path, monkeypatch, capsys):
    """Row: the operator evicts a client => its contribution is subtracted if the server knows it. Otherwise a new epoch
    begins, in which all h_i start at 0. The server does this between two rounds.
    """
    gaps = []

    def on_round(ledger, outcome):
        gaps.append(gap(tmp_path, ledger))
        if ledger.state.t == 2:
            assert fedsum(monkeypatch, "flower", "evict", tmp_path / "run", 1) == 0
        if ledger.state.t == 4:
            assert fedsum(monkeypatch, "flower", "readmit", tmp_path / "run", 1) == 0

    federation(tmp_path, FedSUM(), rounds=6, on_loss=on_loss, on_round=on_round)
    trace = Trace.read(tmp_path / "run" / "participation.csv", clients=N)
    merged = [trace.active(0, t).tolist() for t in range(6)]
    everyone, without = list(range(N)), [0, 2, 3]
    assert merged == [everyone, everyone, without, without, everyone, everyone]
    assert "operator: evict 1: client 1 is evicted" in log(tmp_path)
    assert "operator: readmit 1: client 1 is readmitted" in log(tmp_path)
    assert max(gaps) < 1e-12
    assert pending_requests(tmp_path / "run") == []


def test_requests_wait_for_a_server(tmp_path, monkeypatch, capsys):
    """Row: the operator evicts a client."""
    federation(tmp_path, FedSUM(), rounds=2)
    assert fedsum(monkeypatch, "flower", "evict", tmp_path / "run", N) == 2
    assert f"client = {N}: ids from 0 to {N - 1}" in capsys.readouterr().err
    assert fedsum(monkeypatch, "flower", "evict", tmp_path / "run", 3) == 0
    assert "the server is finished and applies the request when it starts" in capsys.readouterr().err
    make_request(tmp_path / "run", "evict", 3)  # a second request is refused, and changes nothing
    (tmp_path / "run" / "requests" / "not a request").touch()
    assert status_of(tmp_path, monkeypatch, capsys)["requests"] == ["evict 3", "evict 3"]
    federation(tmp_path, FedSUM(), rounds=4)
    assert "operator: evict 3: refused: client = 3: is evicted already" in log(tmp_path)
    rows = status_of(tmp_path, monkeypatch, capsys)["clients"]
    assert [row["evicted"] for row in rows] == [False, False, False, True]


def test_requests_are_applied_in_order_and_saved(tmp_path, monkeypatch, capsys):
    """Also if the server has no round left to save.

    Row: the operator evicts a client.
    """
    federation(tmp_path, FedSUM(), rounds=2)
    for kind, client in (("evict", 3), ("readmit", 3), ("evict", 1)):
        make_request(tmp_path / "run", kind, client)
    federation(tmp_path, FedSUM(), rounds=2)
    rows = status_of(tmp_path, monkeypatch, capsys)["clients"]
    assert [row["evicted"] for row in rows] == [False, True, False, False]
    assert "refused" not in log(tmp_path)


def test_the_status_shows_what_each_client_did(tmp_path, monkeypatch, capsys):
    grid = LocalGrid(tmp_path / "clients", FedSUM())
    happens = {(1, 2): "error", (0, 3): "silent", (1, 3): "silent", (3, 3): "silent"}
    grid.fails = lambda kind, t, client: happens.get((t, client)) if kind == "train.work" else None

    def on_round(ledger, outcome):
        if ledger.state.t == 4:
            for file in (tmp_path / "clients" / ledger.state.job / "client-0").glob("*.safetensors"):
                file.unlink()

    federation(tmp_path, FedSUM(), grid=grid, rounds=5, deadline=0.3, on_round=on_round)
    status = status_of(tmp_path, monkeypatch, capsys)
    assert (status["state"], status["round"], status["epoch"], status["warnings"]) == ("finished", 5, 1, [])
    rows = status["clients"]
    assert [row["faults"] for row in rows] == [{}, {}, {"failed": 1}, {"silent": 3}]
    assert [row["losses"] for row in rows] == [1, 0, 0, 0]
    assert (rows[3]["missed"], rows[3]["skipped"], rows[3]["round"]) == (3, 1, -1)
    assert fedsum(monkeypatch, "flower", "status", tmp_path / "run") == 0
    shown = capsys.readouterr().out
    assert "finished, 5 of" in shown
    assert "3 silent" in shown
    federation(tmp_path, FedSUM(), rounds=6)
    rows = status_of(tmp_path, monkeypatch, capsys)["clients"]  # faults of earlier runs in the folder count too
    assert [row["faults"] for row in rows] == [{}, {}, {"failed": 1}, {"silent": 3}]
    with pytest.raises(InputError, match="the run folder of a deployment"):
        deployment_status(tmp_path)


def test_a_backup_of_a_running_server_is_restored_with_a_new_epoch(tmp_path, monkeypatch, capsys):
    """Row: the server is restored from an old backup => `fedsum flower restore` begins a new epoch. If the files
    were copied by hand, clients reply *lost* and the protocol does the same.
    """
    gaps = []

    def on_round(ledger, outcome):
        gaps.append(gap(tmp_path, ledger))
        if ledger.state.t == 2:
            assert fedsum(monkeypatch, "flower", "backup", tmp_path / "run", tmp_path / "backup") == 0

    first, _ = federation(tmp_path, FedSUM(), rounds=4, on_round=on_round)
    with pytest.raises(InputError, match="a folder that does not exist yet"):
        write_backup(tmp_path / "run", tmp_path / "backup")
    with closing(Journal(tmp_path / "run")), monkeypatch.context() as patch:  # a server is running
        patch.setattr("fedsum.runs.run_writer._PATIENCE", 0.1)
        assert fedsum(monkeypatch, "flower", "restore", tmp_path / "backup", tmp_path / "run") == 2
    assert "another process writes to it" in capsys.readouterr().err
    assert fedsum(monkeypatch, "flower", "restore", tmp_path / "backup", tmp_path / "run") == 0
    assert "after 2 rounds; `flwr run` resumes the run with a new epoch" in capsys.readouterr().out
    assert len(list(tmp_path.glob("run.replaced-*"))) == 1
    ledger, _ = federation(tmp_path, FedSUM(), rounds=6, on_round=on_round)
    assert "operator: epoch: epoch 1 begins" in log(tmp_path)
    assert (ledger.state.t, ledger.state.epoch, ledger.state.job) == (6, 1, first.state.job)
    assert len(gaps) == 4 + 4
    assert max(gaps) < 1e-12
    assert all(row["strikes"] == 0 for row in status_of(tmp_path, monkeypatch, capsys)["clients"])


def test_a_backup_is_consistent_while_files_are_replaced(tmp_path, monkeypatch):
    """Row: the server is restored from an old backup."""
    federation(tmp_path, MIFA(), rounds=2)
    copy = shutil.copy2
    replaced = []

    def copy_late(source, target):
        if "clients" in str(source) and len(replaced) < 2:  # two rounds are merged while the backup is written
            replaced.append(federation(tmp_path, MIFA(), rounds=4))
        return copy(source, target)

    monkeypatch.setattr("fedsum.flower.operators.backup.shutil.copy2", copy_late)
    assert write_backup(tmp_path / "run", tmp_path / "backup") == 4
    monkeypatch.undo()


def test_a_damaged_run_folder_is_not_backed_up(tmp_path, monkeypatch):
    """Row: the server is restored from an old backup."""
    federation(tmp_path, MIFA(), rounds=2)
    path = next((tmp_path / "run" / "clients").iterdir())
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    monkeypatch.setattr("fedsum.flower.operators.backup._ATTEMPTS", 1)
    with pytest.raises(InputError, match=r"an intact checkpoint .*its checksum is wrong"):
        write_backup(tmp_path / "run", tmp_path / "backup")
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def test_a_damaged_backup_is_refused(tmp_path):
    """Row: the server is restored from an old backup."""
    ledger, _ = federation(tmp_path, MIFA(), rounds=2)
    write_backup(tmp_path / "run", tmp_path / "backup")
    path = next((tmp_path / "backup" / "clients").iterdir())
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    with pytest.raises(InputError, match="an intact backup"):
        restore_backup(tmp_path / "backup", tmp_path / "run")
    again, _ = federation(tmp_path, MIFA(), rounds=2)
    assert torch.equal(again.state.server["x"], ledger.state.server["x"])
