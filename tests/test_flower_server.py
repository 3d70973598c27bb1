"""The round loop, the run folder and the roster with a grid in this process and a clock that the tests control."""

import itertools
import json
import re
import tomllib
from contextlib import closing
from importlib import resources

import numpy as np
import pandas as pd
import pytest
import torch
from flower_net import wait_for
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from problems import noisy
from safetensors.torch import load_file, save_file

from fedsum import (
    MIFA,
    Asynchronous,
    Devices,
    Explicit,
    FedAWE,
    FedSUM,
    FedSUMCR,
    InputError,
    InverseSqrt,
    Run,
    RunSpec,
    Trace,
    Uniform,
    delays,
    simulate,
)
from fedsum.flower import Federation, Ledger, client_app, server_app
from fedsum.flower import federation as loop
from fedsum.flower.certs import write_certs
from fedsum.flower.client_keys import read_client_keys
from fedsum.flower.deployment import SETTINGS, Deployment, configured_algorithm
from fedsum.flower.journal import Journal
from fedsum.flower.protocol import MergeRules
from fedsum.flower.transport.wire import to_vectors
from fedsum.training import Options

TASK = noisy(4)
N = TASK.n
RESULT_OPTIONS = ("seed", "local_steps", "eta_g", "batch_size", "clip_norm", "weight_decay")
CONFIG = {"clients": N, "rounds": 6, "local-steps": 2, "eta-l": 0.05, "norm-limit": 0.0, "eval-every": 2}


class LocalGrid(Grid):
    """Every node replies when it is first polled, unless `fails` returns another outcome."""

    def __init__(self, folder, algorithm, nodes=N):
        self.app = client_app(lambda i, n: TASK, algorithm=algorithm)
        self.folder, self.nodes = folder, {100 + i: i for i in range(nodes)}
        self.keys, self.activated = {}, {}
        self.fails = lambda kind, t, client: None
        self.messages, self.count, self.sent = {}, itertools.count(), []

    run = property(lambda self: None)

    def set_run(self, run): ...

    def create_message(self, *args, **kwargs): ...

    def send_and_receive(self, messages, *, timeout=None):
        raise AssertionError("it sleeps three seconds")

    def get_node_ids(self):
        return list(self.nodes)

    def get_nodes(self):
        key, on = self.keys.get, self.activated.get
        return [NodeInfo(node_id=n, public_key=key(n, b""), last_activated_at=on(n, "1")) for n in self.nodes]

    def push_messages(self, messages):
        ids = [f"m{next(self.count)}" for _ in messages]
        for message_id, message in zip(ids, messages, strict=True):
            message.metadata.__dict__["_message_id"] = message_id
            self.messages[message_id] = message
            self.sent.append(message)
        return ids

    def pull_messages(self, message_ids):
        replies = []
        for message in [self.messages[i] for i in message_ids if i in self.messages]:
            replies += self.answered(message)
        return replies

    def answered(self, message):
        kind, client = message.metadata.message_type, self.nodes.get(message.metadata.dst_node_id)
        t = int(message.metadata.group_id or -1)
        fails = self.fails(kind, t, client)
        if fails == "silent":
            return []
        del self.messages[message.metadata.message_id]
        config = {"client-id": client, "state": str(self.folder)}
        context = Context(1, message.metadata.dst_node_id, config, RecordDict(), CONFIG)
        reply = self.app(message, context)
        if fails == "error":
            return [Message(Error(2, "raised"), reply_to=message)]
        if fails == "twice":
            return [reply, reply]
        if callable(fails):
            fails(reply.content)
        return [reply]


@pytest.fixture(autouse=True)
def in_a_server_app(monkeypatch):
    monkeypatch.setattr(loop, "POLL_SECONDS", 0.01)
    for name in ("run_id", "node_id", "task_id"):  # Flower's messages record these ids
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)


def federation(folder, algorithm, *, grid=None, rounds=6, deadline=5.0, eta_l=0.05, own_metrics=None, **given):
    """Trains, and returns the ledger and the grid."""
    grid = grid or LocalGrid(folder / "clients", algorithm)
    rules = {name: given.pop(name) for name in ("quorum", "on_loss", "norm_limit") if name in given}
    changed = {name: given.pop(name) for name in RESULT_OPTIONS if name in given}
    options = Options(**{"rounds": rounds, "local_steps": 2, "eta_l": eta_l, "eval_every": 2} | changed)
    ledger = Ledger(algorithm, TASK.init(0), N, options, MergeRules(**{"norm_limit": 0} | rules))

    def evaluate(rounds_done, arrays):
        return MetricRecord({"train_loss": TASK.loss(to_vectors(arrays)["x"])} | (own_metrics or {}))

    with closing(Journal(folder / "run")) as journal:
        run = Federation(ledger, journal, **given)
        run.start(grid, timeout=deadline, evaluate_fn=evaluate)
    return ledger, grid


def log(folder):
    return (folder / "run" / "log").read_text()


@pytest.mark.parametrize("algorithm", [FedSUM(), FedSUMCR(), MIFA(), FedAWE()], ids=repr)
def test_it_is_the_simulation_and_its_trace_replays(algorithm, tmp_path):
    sets = [[0, 1], [2], [], [1, 3], [0, 1, 2, 3], [2]]
    schedule = Explicit(N, sets)
    ledger, _ = federation(tmp_path, algorithm, schedule=schedule, quorum=N)
    trace = Trace.read(tmp_path / "run" / "participation.csv", clients=N)
    options = {"local_steps": 2, "eta_l": 0.05, "dtype": torch.float64, "eval_model": "server"}
    run = simulate(TASK, algorithm, trace, rounds=6, **options)
    for name, value in run.server.items():
        torch.testing.assert_close(ledger.state.server[name], value, rtol=1e-12, atol=1e-12)
    metrics = pd.read_csv(tmp_path / "run" / "metrics.csv")
    assert metrics["round"].tolist() == [0, 2, 4, 6]
    assert metrics["tau"].tolist()[1:] == delays(schedule, 6).tau[1::2].tolist()
    assert metrics["bytes"].iloc[-1] > run.metrics["bytes"].iloc[-1]  # with headers
    extra = 0 if not isinstance(algorithm, FedSUMCR | FedAWE) else N  # x^(0), once per client
    assert metrics["communication"].iloc[-1] == run.metrics["communication"].iloc[-1] + extra
    assert tomllib.loads((tmp_path / "run" / "status.toml").read_text())["state"] == "finished"


def test_the_log_has_every_metric_and_status_says_that_the_run_was_stopped(tmp_path):
    def stop(ledger, outcome):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        federation(tmp_path, FedSUM(), own_metrics={"test_auc": 0.75}, on_round=stop)
    assert ", test_auc 0.75" in log(tmp_path)
    status = tomllib.loads((tmp_path / "run" / "status.toml").read_text())
    assert status["state"] == "stopped"
    assert status["reason"] == "the server app was ended, as by `flwr stop`; `flwr run` resumes the run"


def test_whoever_is_online_takes_part(tmp_path):
    """Row: a SuperNode goes offline or comes back => clients that are online take part."""
    grid = LocalGrid(tmp_path / "clients", FedSUM(), nodes=2)
    newcomers = {1: (102, 2), 3: (103, 3)}

    def on_round(ledger, outcome):
        if ledger.state.t in newcomers:
            node, client = newcomers[ledger.state.t]
            grid.nodes[node] = client
        if ledger.state.t == 4:
            del grid.nodes[100]

    federation(tmp_path, FedSUM(), grid=grid, on_round=on_round)
    trace = Trace.read(tmp_path / "run" / "participation.csv", clients=N)
    assert [trace.active(0, t).tolist() for t in range(6)] == [[0, 1], [0, 1, 2]] * 1 + [[0, 1, 2]] + [
        [0, 1, 2, 3],
        [1, 2, 3],
        [1, 2, 3],
    ]


def test_faults_of_single_clients_do_not_stop_the_round(tmp_path):
    """Row: a client app raises an exception, or its disk is full => the server receives an error reply and
    continues the round without this client. Next time the client starts from its merged state.
    """
    grid = LocalGrid(tmp_path / "clients", FedSUM())

    def spoil(content):
        content["vectors"] = ArrayRecord({"delta": Array("float64", (4,), "numpy.ndarray", b"nonsense")})

    def impersonate(content):
        content["step_id"]["client"] = 0

    def strange(content):
        content["status"] = ConfigRecord({"status": "fine", "order": "", "version": "", "serial": 0})

    happens = {
        (0, 1): "silent",
        (1, 2): "error",
        (2, 3): "twice",
        (3, 0): spoil,
        (4, 1): impersonate,
        (5, 2): strange,
    }
    grid.fails = lambda kind, t, client: happens.get((t, client))
    ledger, _ = federation(tmp_path, FedSUM(), grid=grid, deadline=0.5)
    trace = Trace.read(tmp_path / "run" / "participation.csv", clients=N)
    missing = [set(range(N)) - set(trace.active(0, t).tolist()) for t in range(6)]
    assert missing == [{1}, {2}, set(), {0}, {1}, {2}]
    lines = log(tmp_path)
    assert "client 1 did not reply within 0.5 s" in lines
    assert "client 2 failed: raised" in lines
    assert "client 0 sent a reply that cannot be read" in lines
    assert "client 1 replied as client 0: refused" in lines
    assert ledger.state.t == 6


def test_an_outage_moves_nothing(tmp_path):
    """Row: too few clients are online => below the quorum nothing is merged, and the round is repeated until enough
    reply.
    """
    grid = LocalGrid(tmp_path / "clients", FedSUM())
    seen, attempts = [], itertools.count()

    def fails(kind, t, client):
        seen.append(t)
        return "silent" if t == 2 and client and next(attempts) < 300 else None

    grid.fails = fails
    federation(tmp_path, FedSUM(), grid=grid, deadline=0.3, quorum=3)
    assert "round 2: 4 clients asked, 1 replies accepted, 3 needed: nothing merged, the round is repeated" in log(
        tmp_path
    )
    trace = Trace.read(tmp_path / "run" / "participation.csv", clients=N)
    assert len(trace.active(0, 2)) >= 3


def test_replies_after_the_deadline_are_never_merged(tmp_path):
    """Row: a reply is late, duplicated, or computed from another state => not merged. Client and server agree that
    it was not.
    """
    grid = LocalGrid(tmp_path / "clients", FedSUM())
    late = []

    def fails(kind, t, client):
        return "silent" if (t, client) == (1, 3) else None

    def on_round(ledger, outcome):
        if ledger.state.t == 2:  # the late reply arrives, and nothing receives it
            grid.fails = lambda *_: None
            late.extend(message for message in grid.messages.values() if message.metadata.group_id == "1")
            for message in late:
                grid.answered(message)

    grid.fails = fails
    ledger, _ = federation(tmp_path, FedSUM(), grid=grid, deadline=0.5, on_round=on_round, on_loss="table")
    assert len(late) == 1
    assert ledger.drift() < 1e-12
    assert {i: last.step for i, last in ledger.state.last.items()} == dict.fromkeys(range(N), 10)


class Killed(BaseException):
    """Simulates a server process that is killed."""


@pytest.mark.parametrize("algorithm", [FedSUM(), FedSUMCR(), MIFA()], ids=repr)
@pytest.mark.parametrize("moment", ["merged", "saved", "evaluated"])
def test_a_killed_server_resumes_from_its_checkpoint(algorithm, moment, tmp_path, monkeypatch):
    """Row: the server app is killed."""
    whole, _ = federation(tmp_path / "whole", algorithm)
    save = Journal.save

    def killed(self, ledger, changed, attendance):
        if moment == "saved":
            save(self, ledger, changed, attendance)
        if ledger.state.t == 4 and (ledger.state.evaluated == 4 if moment == "evaluated" else changed):
            raise Killed
        save(self, ledger, changed, attendance)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "save", killed)
        with pytest.raises(Killed):
            federation(tmp_path, algorithm)
    assert tomllib.loads((tmp_path / "run" / "status.toml").read_text())["state"] == "failed"
    ledger, _ = federation(tmp_path, algorithm)
    assert f"resumed after round {3 if moment == 'merged' else 4} of 6" in log(tmp_path)
    for name, value in whole.state.server.items():
        assert torch.equal(ledger.state.server[name], value)
    for file in ("participation.csv", "metrics.csv"):
        both = [pd.read_csv(folder / "run" / file) for folder in (tmp_path, tmp_path / "whole")]
        pd.testing.assert_frame_equal(*(t.drop(columns=["seconds", "bytes"], errors="ignore") for t in both))
    assert client_files(tmp_path) == set(range(N if isinstance(algorithm, MIFA) else 0))


def client_files(folder):
    """The clients that have files in the run folder: one in the checkpoint, and another in the previous one."""
    names = [path.name for path in (folder / "run" / "clients").iterdir()]
    clients = {int(name.split("-")[0]) for name in names}
    assert len(names) <= 2 * len(clients)
    return clients


def counters(ledger):
    """All counters of the server state except the seconds."""
    state = ledger.state
    delays = {name: values.tolist() for name, values in state.delays.state().items()}
    memory = state.first_norms, state.losses, state.outliers, state.strikes, state.evicted
    return delays, state.sent.vectors, state.evaluated, state.t, state.serial, state.attempts, memory


def test_the_checkpoint_holds_all_counters(tmp_path):
    schedule = Explicit(N, [[0, 1, 3], [2], [], [1, 3], [0, 2]])
    ledger, _ = federation(tmp_path, FedSUM(), schedule=schedule, rounds=5, norm_limit=25)
    ledger.state.losses[1], ledger.state.outliers[2], ledger.state.strikes[1] = 2, 1, [3, 4]
    ledger.evict(3)
    restored = Ledger(FedSUM(), TASK.init(0), N, ledger.options, ledger.rules)
    with closing(Journal(tmp_path / "run")) as journal:
        journal.save(ledger, ())
        assert journal.resume(restored) is not None
    assert counters(restored) == counters(ledger)
    assert restored.state.delays.tau == delays(schedule, 5).tau.tolist()
    assert restored.state.sent == ledger.state.sent
    assert restored.state.seconds == ledger.state.seconds > 0
    assert restored.state.evaluated == 5
    assert list(restored.state.first_norms) == [0, 1, 2]  # not that of the evicted client
    assert restored.state.delays.update(np.array([2, 3])) == ledger.state.delays.update(np.array([2, 3]))


@pytest.mark.parametrize("file", ["participation.csv", "metrics.csv"])
@pytest.mark.parametrize(
    "garble",
    [
        lambda text: b"\x00\xff\xfe no table\n" * 3,
        lambda text: b"",
        lambda text: None,
        lambda text: text.replace(b"1,", b"one,"),
        lambda text: text.replace(b"round", b"ruond"),
        lambda text: re.sub(rb"^round,\w", b"round,\xff", text),
        lambda text: re.sub(rb"^round,\w+", b"round", text),
        lambda text: text + b"9" * 5000 + b",1\n7",
        lambda text: text[: len(text) // 2],
    ],
    ids=["binary", "empty", "deleted", "words", "header", "header-bytes", "header-column", "digits", "cut"],
)
def test_outputs_are_never_read_as_state(file, garble, tmp_path):
    """A resumed run continues with the same counters even if its output files are damaged.

    Row: `participation.csv` or `metrics.csv` is damaged.
    """
    schedule = Explicit(N, [[0, 1], [2], [], [1, 3], [0, 2], [2]])

    def stop(ledger, outcome):
        if ledger.state.t == 4:
            raise Killed

    whole, _ = federation(tmp_path / "whole", FedSUM(), schedule=schedule)
    with pytest.raises(Killed):
        federation(tmp_path, FedSUM(), schedule=schedule, on_round=stop)
    path = tmp_path / "run" / file
    content = garble(path.read_bytes())
    path.unlink() if content is None else path.write_bytes(content)
    ledger, _ = federation(tmp_path, FedSUM(), schedule=schedule)
    assert counters(ledger) == counters(whole)
    assert torch.equal(ledger.state.server["y"], whole.state.server["y"])
    rows = [pd.read_csv(folder / "run" / file) for folder in (tmp_path, tmp_path / "whole")]
    columns = ["round", "client"] if file == "participation.csv" else ["round", "train_loss", "tau", "communication"]
    new, expected = (table[table["round"] >= 4][columns].reset_index(drop=True) for table in rows)
    pd.testing.assert_frame_equal(new, expected)
    damaged = path.with_name(f"{path.stem}.damaged.csv")
    assert damaged.exists() == (f"{file}: " in log(tmp_path))
    assert not damaged.exists() or damaged.read_bytes() == content


def test_a_checkpoint_of_another_version_is_refused(tmp_path):
    federation(tmp_path, FedSUM(), rounds=2)
    path = tmp_path / "run" / "checkpoint.safetensors"
    tensors = load_file(path)
    save_file(tensors, path, {"fedsum": json.dumps({"identity": {}, "books": {}})})
    with pytest.raises(InputError, match="holds a checkpoint of another fedsum version"):
        federation(tmp_path, FedSUM())


def test_a_table_survives_the_server(tmp_path):
    federation(tmp_path, FedSUM(), rounds=3, on_loss="table")
    assert client_files(tmp_path) == set(range(N))
    ledger, _ = federation(tmp_path, FedSUM(), rounds=6, on_loss="table")
    assert ledger.state.t == 6
    assert ledger.drift() < 1e-12
    assert pd.read_csv(tmp_path / "run" / "metrics.csv")["drift"].max() < 1e-12


def test_a_client_that_misses_the_merged_model_counts_as_absent(tmp_path):
    grid = LocalGrid(tmp_path / "clients", FedAWE())
    happens = {(1, 2): "silent", (2, 1): "error"}
    grid.fails = lambda kind, t, client: happens.get((t, client)) if kind == "train.farewell" else None
    ledger, _ = federation(tmp_path, FedAWE(), grid=grid, rounds=3, deadline=0.5)
    assert "round 1: client 2 did not confirm the merged model and counts as absent" in log(tmp_path)
    assert {i: last.step for i, last in ledger.state.last.items()} == {0: 5, 1: 4, 2: 5, 3: 5}


def test_a_folder_is_for_one_run(tmp_path, monkeypatch):
    federation(tmp_path, FedSUM(), rounds=2)
    with pytest.raises(InputError, match=r"holds a run with algorithm.name 'FedSUM', not 'FedSUMCR'"):
        federation(tmp_path, FedSUMCR())
    with pytest.raises(InputError, match="holds a run with on_loss 'reset'"):
        federation(tmp_path, FedSUM(), on_loss="table")
    monkeypatch.setattr("fedsum.flower.journal.LOCK_PATIENCE", 0.1)
    held = Journal(tmp_path / "run")
    with pytest.raises(InputError, match="another process writes to it"):
        Journal(tmp_path / "run")
    held.close()


def test_lost_states_reset_the_epoch_once(tmp_path):
    """Row: a client's state is deleted or damaged."""

    def on_round(ledger, outcome):
        if ledger.state.t == 3:
            for file in (tmp_path / "clients" / ledger.state.job / "client-2").glob("*.safetensors"):
                file.unlink()

    ledger, _ = federation(tmp_path, FedSUM(), on_round=on_round)
    assert "client 2 has lost its state; epoch 1 begins: client states are reset, x is kept" in log(tmp_path)
    assert (ledger.state.epoch, ledger.state.first_round, ledger.state.t) == (1, 3, 6)


def test_keys_say_who_is_who(tmp_path):
    grid = LocalGrid(tmp_path / "clients", FedSUM())
    grid.keys = {100: b"zero", 101: b"one", 102: b"stranger", 103: b"three"}
    keys = {b"zero": 0, b"one": 1, b"two": 2, b"three": 3}
    federation(tmp_path, FedSUM(), grid=grid, keys=keys, rounds=2)
    assert {message.metadata.message_type for message in grid.sent} == {"train.work"}  # no query.hello
    assert 102 not in {message.metadata.dst_node_id for message in grid.sent}
    assert "node 102: its public key belongs to no client; it gets no orders" in log(tmp_path)


def test_a_client_refuses_to_be_another(tmp_path):
    grid = LocalGrid(tmp_path / "clients", FedSUM())
    federation(tmp_path, FedSUM(), grid=grid, rounds=1)
    order = next(message for message in grid.sent if message.metadata.message_type == "train.work")
    context = Context(1, 1, {"client-id": 3, "state": str(tmp_path)}, RecordDict(), CONFIG)
    with pytest.raises(InputError, match="the server sent an order for client 0"):
        grid.app(order, context)


def test_flowers_simulation_is_refused_with_the_function_to_use_instead(tmp_path):
    grid = LocalGrid(tmp_path / "clients", FedSUM())
    federation(tmp_path, FedSUM(), grid=grid, rounds=1)
    hello = next(message for message in grid.sent if message.metadata.message_type == "query.hello")
    context = Context(1, 1, {"partition-id": 0, "num-partitions": 4}, RecordDict(), CONFIG)
    with pytest.raises(InputError, match=r"Flower's simulations do not give it: fedsum\.simulate"):
        grid.app(hello, context)


def test_the_newest_node_of_a_client_is_asked(tmp_path):
    """A SuperNode that died is listed for another minute beside its replacement."""
    grid = LocalGrid(tmp_path / "clients", FedSUM())
    grid.nodes |= {200: 1}
    grid.activated = {200: "2"}
    federation(tmp_path, FedSUM(), grid=grid, rounds=2)
    asked = {message.metadata.dst_node_id for message in grid.sent if message.metadata.message_type == "train.work"}
    assert asked == {100, 200, 102, 103}


def test_nodes_that_say_nonsense_are_left_out(tmp_path):
    grid = LocalGrid(tmp_path / "clients", FedSUM())
    grid.nodes |= {300: 17}
    federation(tmp_path, FedSUM(), grid=grid, rounds=1)
    assert "node 300 claims to be client 17; client ids are 0 to 3" in log(tmp_path)


def test_divergence_stops_the_run(tmp_path):
    federation(tmp_path, FedSUM(), rounds=500, eta_l=1e80)
    status = tomllib.loads((tmp_path / "run" / "status.toml").read_text())
    assert status["state"] == "diverged"
    assert status["round"] < 500
    with pytest.raises(InputError, match="holds a run that diverged"):
        federation(tmp_path, FedSUM(), rounds=500, eta_l=1e80)


def test_the_server_app_runs_from_its_configuration(tmp_path):
    grid = LocalGrid(tmp_path / "clients", FedSUM())
    app = server_app(lambda n: TASK)
    config = CONFIG | {"folder": str(tmp_path / "run"), "algorithm.name": "FedSUM", "schedule.name": ""}
    app(grid, Context(1, 1, {}, RecordDict(), config))
    config = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert config["rounds"] == 6
    assert config["algorithm"] == {"name": "FedSUM", "divide_by_seen": False}
    assert config["schedule"] == {"name": "online", "n": N}
    rules = {"deadline": 60.0, "quorum": 1, "on_loss": "reset", "norm_limit": 0.0, "grace": 0.0, "text_limit": 300}
    assert rules.items() <= config["deployment"].items()
    run = Run.read(tmp_path / "run")  # the same reader as for a simulation
    assert (run.state, run.round, run.problem, run.last["round"]) == ("finished", 6, "", 6)
    with pytest.raises(InputError, match="these are settings of a deployed run; resume it with `flwr run`"):
        RunSpec.parse(run.config)
    assert json.loads(json.dumps(config["environment"]))["flwr"]
    wait_for((tmp_path / "run" / "metrics.csv").exists, 1, "metrics")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"clients": 3}, "rounds = None: is required"),
        (CONFIG | {"etal": 1}, "etal = 1: no such setting; did you mean 'eta-l'"),
        (CONFIG | {"algorithm.name": "FedSun"}, "algorithm = 'FedSun': did you mean 'FedSUM'"),
        (CONFIG | {"algorithm.name": "FedAWE", "algorithm.clap": 1}, "FedAWE.clap = 1: no such field"),
    ],
)
def test_wrong_settings_are_refused(config, message):
    with pytest.raises(InputError, match=message):
        Deployment.parse(config)


def test_an_asynchronous_schedule_is_refused():
    """In a deployment the clients' own speeds decide who replies in time."""
    with pytest.raises(InputError, match="schedule = 'Asynchronous': a schedule of rounds"):
        Deployment.parse(CONFIG).replaced(None, Asynchronous(N, Devices(), 1), None)


def test_settings_make_schedules_and_rates(tmp_path):
    rate = {"eta-l.name": "InverseSqrt", "eta-l.eta-0": 0.05, "eta-l.over": 10.0, "schedule.path": ""}
    config = {key: value for key, value in CONFIG.items() if key != "eta-l"} | rate
    made = Deployment.parse(config | {"mine.width": 64, "schedule.name": "cyclic", "schedule.size": 2})
    assert made.schedule.active(0, 0).tolist() == [0, 1]
    assert made.spec.options.eta_l == InverseSqrt(0.05, 10.0)
    assert made.dump()["eta_l"] == {"name": "InverseSqrt", "eta_0": 0.05, "over": 10.0}
    assert Deployment.parse(CONFIG).spec.options.eta_l == 0.05
    assert Deployment.parse(CONFIG | {"schedule.name": ""}).schedule is None
    with pytest.raises(InputError, match=r"eta-l\.name = 'InverseSqrt': eta-l is also given as a number"):
        Deployment.parse(CONFIG | rate)
    (tmp_path / "trace.csv").write_text("round,client\n0,1\n")
    traced = {"schedule.name": "trace", "schedule.path": str(tmp_path / "trace.csv")}
    assert Deployment.parse(CONFIG | traced).schedule.n == N
    (tmp_path / "trace.csv").unlink()  # only the server needs the trace
    assert configured_algorithm(CONFIG | traced | {"algorithm.name": "MIFA"}) == MIFA()


def test_what_python_says_instead_of_settings():
    made = Deployment.parse(CONFIG).replaced(MIFA(), Uniform(N, 2), lambda t: 0.5 / (t + 1))
    assert made.dump()["algorithm"] == {"name": "MIFA", "displacements": False, "divide_by_seen": False}
    assert made.dump()["schedule"] == {"name": "Uniform", "n": N, "size": 2}
    assert made.dump()["eta_l"]["values"][:2] == [0.5, 0.25]
    assert made.schedule == Uniform(N, 2)


def test_keys_of_clients(tmp_path):
    write_certs(tmp_path / "certs", N + 1, ["localhost"])
    assert sorted(read_client_keys(tmp_path / "certs" / "clients.toml", N + 1).values()) == list(range(N + 1))
    with pytest.raises(InputError, match="client-keys = 4: ids from 0 to 3"):
        read_client_keys(tmp_path / "certs" / "clients.toml", N)
    (tmp_path / "keys.toml").write_text('[clients]\n0 = "abc"\n')
    for name in ("keys.toml", "none.toml"):
        with pytest.raises(InputError, match="client-keys = "):
            read_client_keys(tmp_path / name, N)


@pytest.mark.parametrize(
    "changed",
    [
        {"seed": 7},
        {"local-steps": 3},
        {"eta-l": 0.04},
        {"eta-g": 0.5},
        {"batch-size": 7},
        {"clip-norm": 1.0},
        {"weight-decay": 0.1},
        {"clients": N + 1},
        {"algorithm.name": "FedSUM-B"},
        {"on-loss": "table"},
    ],
)
def test_a_resumed_deployment_has_the_same_settings(changed, tmp_path):
    grid, app = LocalGrid(tmp_path / "clients", FedSUM()), server_app(lambda n: TASK)
    config = CONFIG | {"folder": str(tmp_path / "run"), "algorithm.name": "FedSUM"}
    app(grid, Context(1, 1, {}, RecordDict(), config))
    before = Run.read(tmp_path / "run").config
    with pytest.raises(InputError, match=r"the run in .* has "):
        app(grid, Context(1, 1, {}, RecordDict(), config | changed))
    assert Run.read(tmp_path / "run").config == before  # a refused call changes nothing
    assert "refused to start: " in log(tmp_path)
    status = Run.read(tmp_path / "run")
    assert (status.state, status.round) == ("finished", 6)
    assert status.reason.startswith("refused to start: ")
    longer = {
        "rounds": 8,
        "deadline": 30.0,
        "quorum": 2,
        "eval-every": 1,
        "schedule.name": "cyclic",
        "schedule.size": 2,
    }
    app(grid, Context(1, 1, {}, RecordDict(), config | longer))
    after = Run.read(tmp_path / "run")
    assert (after.round, after.config["rounds"], after.config["schedule"]["name"]) == (8, 8, "Cyclic")
    assert after.config["environment"] == before["environment"]


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").touch()
    config = CONFIG | {"folder": str(tmp_path / "run"), "algorithm.name": "FedSUM"}
    with pytest.raises(InputError, match="an empty folder or a run's folder; it has thesis"):
        server_app(lambda n: TASK)(LocalGrid(tmp_path, FedSUM()), Context(1, 1, {}, RecordDict(), config))
    assert not (tmp_path / "run" / "log").exists()


def test_the_template_names_every_setting():
    template = resources.files("fedsum.flower") / "template" / "pyproject.toml"
    config = tomllib.loads(template.read_text())["tool"]["flwr"]["app"]["config"]
    assert {key.replace("-", "_") for key in config} == {*SETTINGS, "algorithm", "schedule"} - {
        *("eval_last", "clip_norm", "weight_decay"),
    }
    flat = {
        f"{key}.{name}": value
        for key, table in config.items()
        if isinstance(table, dict)
        for name, value in table.items()
    }
    flat |= {key: value for key, value in config.items() if not isinstance(value, dict)}
    assert Deployment.parse(flat).spec.algorithm == FedSUM()
