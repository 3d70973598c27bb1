"""End to end: a real SuperLink and real SuperNodes on 127.0.0.1."""

import csv
import json
import tomllib

import pandas as pd
import pytest
import torch
from flower_net import Net, wait_for
from safetensors import safe_open
from safetensors.torch import load_file

from fedsum import Explicit, Trace, simulate
from fedsum.algorithms import ALGORITHMS
from fedsum.flower.certs import write_certs
from fedsum.flower.client_store import ClientStore
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
]
pytestmark = pytest.mark.xdist_group("flower")  # one after the other: a federation needs all cores


def server_state(folder):
    """The server state in a checkpoint: numbers and tensors."""
    with safe_open(folder / "checkpoint.safetensors", framework="pt") as file:
        numbers = json.loads(file.metadata()["fedsum"])["state"]
        return numbers, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


def sums(net, folder):
    """After each round: (rounds done, epoch, merged, ||y - sum h|| / ||y||)."""
    job = server_state(folder)[0]["job"]
    with (net.state / f"sums-{job}.csv").open() as file:
        return [(int(t), int(epoch), int(m), float(away)) for t, epoch, m, away in csv.reader(file)]


def states_on_disk(net, folder):
    """The saved server state, the server's memory of each client, and the clients' own states."""
    numbers, tensors = server_state(folder)
    memory, clients = ({int(i): {} for i in numbers["last"]} for _ in range(2))
    for path in (folder / "clients").iterdir():
        memory[int(path.name.split("-")[0])] = {k.removeprefix("row."): v for k, v in load_file(path).items()}
    for i, last in numbers["last"].items():
        if version := ClientStore(net.state, numbers["job"], int(i)).read().find(numbers["epoch"], last):
            clients[int(i)] = version.state
    server = {key.removeprefix("server."): value for key, value in tensors.items() if key.startswith("server.")}
    return server, memory, clients


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
        folders = {name: net.run(folder=name, **{"algorithm.name": name}, **shared) for name in names}
        for folder in folders.values():
            net.finished(folder, 400)
    task = Quadratic.random(2, 50, noise=0.5, spread=3.0, seed=1)
    for name, folder in folders.items():
        algorithm = ALGORITHMS[name.replace("-", "")]()
        options = {"local_steps": 3, "eta_l": lambda t: 0.05 / (t / 10 + 1) ** 0.5, "seed": 5, "eval_every": 1}
        run = simulate(task, algorithm, Explicit(2, sets), rounds=len(sets), eval_model="server", **options)
        wanted = (run.server, dict(run.memory), dict(run.clients))
        torch.testing.assert_close(states_on_disk(net, folder), wanted, rtol=1e-5, atol=1e-5)
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


def test_no_fault_breaks_the_sum(tmp_path):
    """One run with a fault in each round. The server reads the clients' state files and checks the sum every round."""
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
    assert min(numbers["last"].values()) >= 2 * 4  # all clients were merged again
    assert len(numbers["last"]) == 3


def test_tls_and_keys_keep_strangers_out(tmp_path):
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
