"""Attacks, faults and operators' mistakes on a real SuperLink and real SuperNodes, in the slow tier.

The same rows have faster tests in one process: test_flower_attacks.py, test_flower_files.py, test_flower_replies.py.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from flower_net import Net, wait_for
from test_flower import sums

from fedsum import Trace
from fedsum.flower import deployment_status
from fedsum.flower.certs import write_certs
from fedsum.flower.protocol import STRIKES

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("flower")]


def log(folder):
    return (folder / "log").read_text() if (folder / "log").exists() else ""


def trained(net, folder, rounds, seconds=400, **config):
    """Starts a run, or resumes the one in the folder, and waits until these rounds are done."""
    before = log(folder).count(f"round {rounds}/{rounds}:")
    net.run(folder=folder.name, rounds=rounds, **config)
    wait_for(lambda: log(folder).count(f"round {rounds}/{rounds}:") > before, seconds, f"{rounds} rounds")
    net.finished(folder, 60)


def test_a_false_first_uplink_and_a_silent_client(tmp_path):
    """Row: a client sends a false uplink.

    Row: a client is listed as online and never replies.
    """
    rounds = 9
    with Net(tmp_path) as net:
        net.superlink()
        for i in range(3):
            net.supernode(i)
        net.faults((0, 2, "huge"), *((t, 1, "delay=3000") for t in range(1, rounds)))
        folder = tmp_path / "run"
        trained(net, folder, rounds, 900, quorum=2, grace=15.0)
        rows, gaps = deployment_status(folder).clients, sums(net, folder)
    lines = log(folder)
    assert re.search(r"round 0: client 2's reply refused: its h has norm [\d.e+]+, the largest accepted is", lines)
    assert agreed(gaps) == list(range(1, rounds + 1))
    silent = [t for t in range(rounds) if f"round {t}: client 1 did not reply within 15 s of the quorum" in lines]
    assert silent == [1, 2, 4, 8]  # pauses of 0, 1, 3 and 7 rounds
    assert (rows[1]["faults"], rows[1]["missed"]) == ({"silent": 4}, 1 + 3)
    assert lines.count("; not asked after repeated faults: 1") == 1 + 3


def test_a_client_app_that_dies_after_its_reply(tmp_path):
    """A minute later Flower reports the dead client app as a failure of the order that the SuperNode is working on.
    That order then has two replies, and from then on the SuperNode uploads each reply only when the next message
    arrives.

    Row: a client app is killed after its reply.
    """
    rounds = 5
    with Net(tmp_path) as net:
        net.superlink()
        for i in range(3):
            net.supernode(i)
        net.faults((1, 1, "kill-after"), (2, 1, "delay=75"))
        folder = tmp_path / "run"
        trained(net, folder, rounds, 900, quorum=3, deadline=90.0)
        gaps = sums(net, folder)
    lines = log(folder)
    assert "round 2: client 1 failed: ClientApp stopped responding" in lines
    behind = re.findall(r"round (\d+)/.*; replied after a second message: 1\n", lines)
    assert behind == ["3", "4", "5"]
    assert [merged for *_, merged, _ in gaps] == [3] * rounds
    assert agreed(gaps) == list(range(1, rounds + 1))


def test_a_disk_that_vanishes_and_returns(tmp_path):
    """Two disks have results of the same step of client 0, and only one of the results was merged.

    Row: a client computes the same step twice with different results.
    """
    with Net(tmp_path) as net:
        net.environment["FEDSUM_TEST_IRREPRODUCIBLE"] = "1"
        net.superlink()
        for i in range(2):
            net.supernode(i)
        net.faults((0, 0, "disk-vanishes"), (1, 0, "disk-returns"))
        folder = tmp_path / "run"
        trained(net, folder, 4, clients=2, quorum=2)
        gaps = sums(net, folder)
    assert "client 0 failed: <class 'RuntimeError'>:<'the disk vanished'>" in log(folder)
    assert "round 1: client 0 has lost its state; epoch 1 begins" in log(folder)
    assert [merged for *_, merged, _ in gaps] == [2] * 4
    assert agreed(gaps) == [1, 2, 3, 4]


def test_three_restores_by_hand_exclude_no_client(tmp_path):
    """Each restored state is newer than the restore before, so that it contains what was counted after that one.

    Row: the server is restored from an old backup.
    """
    with Net(tmp_path) as net:
        net.superlink()
        for i in range(3):
            net.supernode(i)
        folder, copy = tmp_path / "run", tmp_path / "copy"
        trained(net, folder, 2, quorum=3)
        for rounds in (2, 3, 4):
            shutil.copytree(folder, copy)
            trained(net, folder, rounds + 2, quorum=3)
            shutil.rmtree(folder)
            copy.rename(folder)
            trained(net, folder, rounds + 1, quorum=3)
        rows, gaps = deployment_status(folder).clients, sums(net, folder)
    assert len(agreed(gaps)) == 2 + 3 * (2 + 1)
    assert log(folder).count("client states are reset, x is kept") == 3
    trace = Trace.read(folder / "participation.csv", clients=3)
    assert [trace.active(0, t).tolist() for t in range(5)] == [[0, 1, 2]] * 5
    # A client may get a strike if the others still have the state that the restored server knows.
    assert all(row["strikes"] < STRIKES and not row["evicted"] for row in rows)


def test_changed_settings_are_refused(tmp_path):
    """Row: a setting that changes results is changed on resume."""
    changes = {
        "seed": (6, "seed = 6: "),
        "local_steps": (4, "local_steps = 4: "),
        "eta-l.eta-0": (0.04, "eta_l(0) = 0.04: "),
        "on_loss": ("table", "on_loss = 'table': "),
    }
    with Net(tmp_path) as net:
        net.superlink()
        for i in range(2):
            net.supernode(i)
        folder = tmp_path / "run"
        trained(net, folder, 2, clients=2)
        before = (folder / "checkpoint.safetensors").read_bytes()
        for name, (value, words) in changes.items():
            net.run(**{"clients": 2, "rounds": 4, name: value})
            wait_for(lambda words=words: refused(folder, words), 200, f"the refusal of {name}")
        assert (folder / "checkpoint.safetensors").read_bytes() == before
        trained(net, folder, 3, clients=2)
        assert agreed(sums(net, folder)) == [1, 2, 3]


def test_two_nodes_with_one_id_and_two_clients_with_one_key(tmp_path):
    """Row: two SuperNodes are the same client.

    Row: there is no `client-keys`, with or without authentication.

    Row: one key is listed for two clients.
    """
    certs = tmp_path / "certs"
    write_certs(certs, 3, ["127.0.0.1"])
    with Net(tmp_path, certs=certs) as net:
        net.superlink("--enable-supernode-auth")
        for key, client in enumerate((0, 1, 0)):  # the first and the last SuperNode claim to be client 0
            net.flwr("supernode", "register", str(certs / f"client-{key}.pub"), "test")
            net.supernode(client, f"--auth-supernode-private-key={certs / f'client-{key}.key'}", name=f"node-{key}")
        folder = tmp_path / "run"
        trained(net, folder, 3, clients=2, quorum=2)
        assert agreed(sums(net, folder)) == [1, 2, 3]
        assert "client ids are not verified: any SuperNode can claim to be any client; set client-keys" in log(folder)
        assert re.search(r"SuperNodes \d+ and \d+ are both client 0: \d+, which connected last", log(folder))
        key = (certs / "client-0.pub").read_text().strip()
        (tmp_path / "keys.toml").write_text(f'[clients]\n0 = "{key}"\n1 = "{key}"\n')
        net.run(folder="shared", clients=2, client_keys=str(tmp_path / "keys.toml"))
        words = "client-keys = 1: has the key of client 0; each client needs its own"
        wait_for(lambda: words in server_output(net), 200, "the refusal of the keys")
        assert not (tmp_path / "shared").exists()


def test_a_full_disk_of_the_server(tmp_path):
    """Row: the server's disk is full."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with Net(tmp_path) as net:
        mount = f'mount -t tmpfs -o size=1m none {disk} && exec "$@"'
        allowed = subprocess.run(["unshare", "-rm", "sh", "-c", mount, "sh", "true"], capture_output=True, check=False)
        if allowed.returncode:
            pytest.skip(f"needs the right to mount: {allowed.stderr.decode().strip()}")
        net.within = ("unshare", "-rm", "sh", "-c", mount, "sh")
        net.superlink()
        net.within = ()
        for i in range(2):
            net.supernode(i)
        seen = Path(f"/proc/{net.processes['superlink'].pid}/root{disk}")  # the folder in the SuperLink's namespace
        folder = seen / "run"
        net.run(folder="disk/run", rounds=5, clients=2)
        wait_for(lambda: "round 2/5" in log(folder), 300, "two rounds")
        (net.state / "fill-disk").write_text(str(disk / "filler"))
        wait_for(lambda: deployment_status(folder).run.state == "failed", 200, "the end of the run")
        failed = deployment_status(folder).run
        assert failed.reason.startswith("the server's disk is full: free space, then call `flwr run` again")
        (net.state / "fill-disk").unlink()
        (seen / "filler").unlink()
        net.run(folder="disk/run", rounds=5, clients=2)
        wait_for(lambda: deployment_status(folder).run.state == "finished", 300, "the resumed run")
        assert re.search(r"resumed after round [234] of 5", log(folder))
        assert sorted(set(agreed(sums(net, folder)))) == [1, 2, 3, 4, 5]  # an unsaved round is repeated


def agreed(gaps):
    """The rounds after which y was compared with the sum of all h_i, and equal. The server app skips a round in which
    a client's state is missing.
    """
    assert all(away <= 1e-6 for *_, away in gaps)
    return [t for t, *_ in gaps]


def refused(folder, words):
    return any("refused to start" in line and words in line for line in log(folder).splitlines())


def server_output(net):
    """The output of the last run's server app, as `flwr log` shows it, in one line."""
    runs = re.findall(r"Created run (\d+)", (net.folder / "superlink.log").read_text())
    return " ".join(net.flwr("log", runs[-1], "test", "--show").split())
