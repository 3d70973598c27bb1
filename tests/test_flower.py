"""End to end: a real SuperLink and real SuperNodes on 127.0.0.1."""

import csv
import re
import tomllib

import pandas as pd
import pytest
import torch
from flower_net import Net, wait_for
from safetensors.torch import load_file

from fedsum import Explicit, Trace, simulate
from fedsum.algorithms import ALGORITHMS
from fedsum.flower import make_request, restore_backup, write_backup
from fedsum.flower.certs import write_certs
from fedsum.flower.storage import ClientStore, read_header
from fedsum.tasks import Quadratic

SETS = [[0, 1], [], [1], [0]]
RUNS = [
    pytest.param(("FedSUM", "FedSUM-CR", "SCAFFOLD"), SETS, id="three"),
    # With SETS alone FedAU's weights are all 1, because an interval is first used in the client's next active round.
    pytest.param(
        ("FedSUM-B", "FedAvg", "FedAU", "FedAWE", "MIFA", "FedVARP"),
        [*SETS, [0, 1]],
        id="six",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        ("FedStale", "KnownFedAvg", "FedAvgM", "FedAdagrad", "FedYogi", "FedAdam"),
        [*SETS, [0, 1]],
        id="server",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        ("FedExP", "FedCM", "SCAFFOLD-M", "AmplifiedFedAvg", "AmplifiedSCAFFOLD", "ServerOpt"),
        [*SETS, [0, 1]],
        id="momentum",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        ("FOCUS", "FedDyn", "FedProx", "Compressed", "FedBuff", "FedAsync"),
        [*SETS, [0, 1]],
        id="proximal",
        marks=pytest.mark.slow,
    ),
]
pytestmark = pytest.mark.xdist_group("flower")  # one after the other: a federation needs all cores


def server_state(folder):
    """The server state in a checkpoint: numbers and tensors."""
    return read_header(folder / "checkpoint.safetensors").state, load_file(folder / "checkpoint.safetensors")


def sums(net, folder):
    """After each round: (rounds done, epoch, merged, ||y - sum h|| / ||y||)."""
    job = server_state(folder)[0]["job"]
    with (net.state / f"sums-{job}.csv").open() as file:
        return [(int(t), int(epoch), int(m), float(away)) for t, epoch, m, away in csv.reader(file)]


def states_on_disk(net, folder):
    """The saved server state, the server's memory of each client, and the clients' own states."""
    numbers, tensors = server_state(folder)
    memory, clients = ({int(i): {} for i in numbers["last"]} for _ in range(2))
    for i, name in read_header(folder / "checkpoint.safetensors").files.items():
        saved = load_file(folder / "clients" / name)
        memory[i] = {k.removeprefix("row."): v for k, v in saved.items() if k.startswith("row.")}
    for i, last in numbers["last"].items():
        if version := ClientStore(net.state, numbers["job"], int(i)).read().find(last[1]):
            clients[int(i)] = version.state
    server = {key.removeprefix("server."): value for key, value in tensors.items() if key.startswith("server.")}
    return server, memory, clients


def test_every_algorithm_has_a_run():
    assert {name.replace("-", "") for run in RUNS for name in run.values[0]} == ALGORITHMS.keys()


@pytest.mark.parametrize(("names", "sets"), RUNS)
def test_a_run_with_a_schedule_is_the_simulation(tmp_path, names, sets):
    rows = [f"{t},{i}" for t, clients in enumerate(sets) for i in clients]
    (tmp_path / "trace.csv").write_text("\n".join(["round,client", *rows]) + "\n")
    with Net(tmp_path) as net:
        net.superlink()
        for i in range(2):
            net.supernode(i)
        shared = {
            "clients": 2,
            "schedule.name": "trace",
            "schedule.path": str(tmp_path / "trace.csv"),
            "rounds": len(sets),
            "quorum": 2,
        }
        folders = {}
        for name in names:
            folders[name] = net.run(folder=name, **{"algorithm.name": name}, **shared)
            if (
                len(folders) % 3 == 0 or name == names[-1]
            ):  # Flower ends runs whose processes are late on a busy machine
                for folder in folders.values():
                    net.finished(folder, 400)
    task = Quadratic.random(2, 50, noise=0.5, spread=3.0, seed=1)
    for name, folder in folders.items():
        algorithm = ALGORITHMS[name.replace("-", "")]()
        options = {"local_steps": 3, "eta_l": lambda t: 0.05 / (t / 10 + 1) ** 0.5, "seed": 5, "eval_every": 1}
        run = simulate(task, algorithm, Explicit(2, sets), rounds=len(sets), eval_model="server", **options)
        wanted = (run.server, dict(run.memory), dict(run.clients))
        torch.testing.assert_close(states_on_disk(net, folder), wanted, rtol=1e-5, atol=1e-5, check_dtype=False)
        metrics = pd.read_csv(folder / "metrics.csv")
        for column in ("round", "train_loss", "tau"):
            torch.testing.assert_close(
                torch.tensor(metrics[column].to_numpy(), dtype=torch.float64),
                torch.tensor(run.metrics[column].to_numpy(), dtype=torch.float64),
                rtol=1e-5,
                atol=1e-5,
            )
        trace = Trace.read(folder / "participation.csv", clients=2)
        assert [trace.active(0, t).tolist() for t in range(len(sets))] == sets
        assert tomllib.loads((folder / "config.toml").read_text())["algorithm"]["name"] == algorithm.name


@pytest.mark.slow
def test_no_fault_breaks_the_sum(tmp_path):
    """One run with a fault in each round. The server reads the clients' state files and checks the sum every round.

    Row: a client app raises an exception, or its disk is full.

    Row: a client app is killed after its reply => its reply counts, because the state was saved before. A minute later
    Flower may report a failure of the client's current order, and its SuperNode then uploads each reply only when the
    next message arrives. Clients whose replies are overdue therefore get a second message.

    Row: a reply is late, duplicated, or computed from another state.

    Row: a client's state is deleted or damaged.

    Row: the server app is killed.
    """
    with Net(tmp_path) as net:
        net.superlink()
        for i in range(3):
            net.supernode(i)
        net.faults(
            (1, 0, "raise"),
            (1, 1, "full"),
            (2, 0, "nan"),
            (2, 1, "nonsense"),
            (3, 2, "kill-after"),
            (4, 1, "delete"),
            (5, 0, "delay=27"),
        )
        (net.state / "kill-server-in").write_text("6")
        config = {"rounds": 9, "deadline": 25.0}
        folder = net.run(**config)
        wait_for(lambda: not (net.state / "kill-server-in").exists(), 400, "the server's death")
        net.run(**config)
        net.finished(folder, 200)
        log = (folder / "log").read_text()
        numbers, _ = server_state(folder)
        rounds = sums(net, folder)
    assert [t for t, *_ in rounds] == list(range(1, 10))
    assert max(away for *_, away in rounds) <= 1e-6
    for line in (
        "client 0 failed: <class 'RuntimeError'>:<'raised after computing'>",
        "round 1: client 1 failed: <class 'OSError'>",
        "round 2: client 0's reply refused: delta holds NaN or infinity",
        "round 2: client 1 sent a reply that cannot be read",
        "client 1 has lost its state; epoch 1 begins",
        "round 5: client 0 did not reply within 25 s",
        "resumed after round 6 of 9",
    ):
        assert line in log
    assert numbers["epoch"] == 1
    assert min(step for step, _ in numbers["last"].values()) >= 2 * 4  # all clients were merged again
    assert len(numbers["last"]) == 3


def test_tls_and_keys_keep_strangers_out(tmp_path):
    """Row: a SuperNode without a registered key connects => it gets no orders."""
    certs, others = tmp_path / "certs", tmp_path / "others"
    write_certs(certs, 2, ["127.0.0.1"])
    write_certs(others, 1, ["127.0.0.1"])
    with Net(tmp_path, certs=certs) as net:
        net.superlink("--enable-supernode-auth")
        for i in (1, 0):  # registered in another order than their ids, because the key identifies the client
            net.flwr("supernode", "register", str(certs / f"client-{i}.pub"), "test")
        state = f'state="{net.state}"'
        for i in range(2):
            net.supernode(i, f"--auth-supernode-private-key={certs / f'client-{i}.key'}", config=state)
        key = f"--auth-supernode-private-key={others / 'client-0.key'}"
        unregistered = net.supernode(0, key, name="unregistered", config=state)
        keyless = net.supernode(0, name="keyless")
        net.certs = None
        plain = net.supernode(0, "--max-retries=1", name="plain")
        net.certs = certs
        shared = {"clients": 2, "rounds": 2, "quorum": 2, "client_keys": str(certs / "clients.toml")}
        folder = net.run(**shared)
        net.finished(folder, 200)
        for name, stranger in {"unregistered": unregistered, "keyless": keyless, "plain": plain}.items():
            assert stranger.wait(60) != 0
            assert "Receiving" not in (tmp_path / f"{name}.log").read_text()
        assert "Receiving" in (tmp_path / "supernode-0.log").read_text()
        assert max(away for *_, away in sums(net, folder)) <= 1e-6
        trace = Trace.read(folder / "participation.csv", clients=2)
        assert [trace.active(0, t).tolist() for t in range(2)] == [[0, 1], [0, 1]]


@pytest.mark.slow
def test_attacks_and_operators_on_real_processes(tmp_path):
    """Malformed and inflating replies, damaged files on both sides, a restored backup and an eviction.

    Row: a reply is malformed or too large, or decodes to gigabytes.

    Row: a client sends 50 MB of text, newlines or terminal codes.

    Row: a client's state is deleted or damaged.

    Row: a client's clock is wrong.

    Row: the server's checkpoint is damaged or missing.

    Row: the server is restored from an old backup.

    Row: the operator evicts a client.
    """
    with Net(tmp_path) as net:
        net.superlink()
        for i in range(3):
            net.supernode(i)
        faults = ((1, 0, "chunk"), (1, 1, "bomb"), (2, 2, "text"), (3, 0, "clock"), (4, 1, "flip"), (5, 2, "flood"))
        net.faults(*faults)
        config = {"rounds": 6, "deadline": 60.0, "quorum": 1}
        folder = net.run(**config)
        wait_for((folder / "participation.csv").exists, 300, "the first round")
        write_backup(folder, tmp_path / "backup")
        net.finished(folder, 600)
        log = (folder / "log").read_text()
        make_request(folder, "evict", 2)
        checkpoint = folder / "checkpoint.safetensors"
        checkpoint.write_bytes(checkpoint.read_bytes()[:-1] + b"\xff")
        net.run(**config | {"rounds": 8})
        wait_for(lambda: "round 8/8" in (folder / "log").read_text(), 300, "two more rounds")
        net.finished(folder, 60)
        log += (folder / "log").read_text()
        rounds = sums(net, folder)
        restore_backup(tmp_path / "backup", folder)
        net.run(**config | {"rounds": 4})
        wait_for(lambda: "round 4/4" in (folder / "log").read_text(), 300, "the restored run")
        net.finished(folder, 60)
        log += (folder / "log").read_text()
        rounds += sums(net, folder)
    assert max(away for *_, away in rounds) <= 1e-6
    for line in (
        "round 1: client 0 sent a reply that cannot be read: ValueError('an array with a chunk that does not exist')",
        "round 1: client 1 sent a reply of",
        "bytes once decoded, more than",
        "round 2: client 2 failed: <class 'RuntimeError'>:<'round 9: all is well \\x1b[2J\\nround 9:",
        "round 5: client 2 sent a reply of more than 1,000,400 bytes",
        "client 1 has lost its state; epoch 1 begins",
        "is damaged: its checksum is wrong; the file is now checkpoint.broken.safetensors",
        "operator: evict 2: client 2 is evicted",
        "operator: epoch: epoch",
    ):
        assert line in log, line
    assert re.search(r"client 0's clock is 86,[34]\d\d s ahead of the server's", log)  # its reply took a moment
    assert "\x1b" not in log
