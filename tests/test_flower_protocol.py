"""The commit protocol without Flower: y = sum of all h_i with lost, repeated and late messages and killed processes."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from problems import Shifted, decaying, noisy, third_empty

from fedsum import (
    FOCUS,
    MIFA,
    SCAFFOLD,
    SCAFFOLDM,
    Adam,
    Compressed,
    FedAvg,
    FedAWE,
    FedSUM,
    FedSUMB,
    FedSUMCR,
    InputError,
    Int8,
    KnownFedAvg,
    RandomK,
    ServerOpt,
    simulate,
)
from fedsum.algorithms import ALGORITHMS
from fedsum.flower.protocol import Ledger, MergeRules, StateVersion, answer
from fedsum.flower.protocol.messages import NEVER
from fedsum.flower.protocol.probes import telescopes
from fedsum.flower.storage import ClientStore
from fedsum.tasks import Quadratic
from fedsum.training.options import Options

N = 4
_random = Quadratic.random(N, 3, noise=0.3, seed=3)
TASK = Shifted(_random.curvature, _random.centers, 0.3)
STATE_OF = {"FedSUM": "h", "FedSUMB": "h", "FedSUMCR": "h", "SCAFFOLD": "c"}


def options(**given):
    return Options(**{"rounds": 100, "local_steps": 2, "eta_l": 0.05, "batch_size": 1} | given)


class Killed(BaseException):
    """Simulates a process that is killed at this point."""


class Disk(ClientStore):
    """A store whose writes may fail or kill the process; it records all versions ever written."""

    def __init__(self, *args):
        super().__init__(*args)
        self.fault, self.written = None, {}

    def save(self, version):
        fault, self.fault = self.fault, None
        if fault == "full":
            raise OSError("No space left on device")
        if fault == "before":
            raise Killed
        if fault == "promoted":  # killed between the two renames
            if self.read().promotes(version):
                (self.folder / "pending.safetensors").rename(self.folder / "merged.safetensors")
            raise Killed
        saved = super().save(version)
        if saved:
            self.written[version.version] = version.state
        if fault == "after":
            raise Killed
        return saved

    def wipe(self):
        for name in ("merged", "pending"):
            (self.folder / f"{name}.safetensors").unlink(missing_ok=True)


class Federation(RuleBasedStateMachine):
    """Orders and replies are messages that may arrive late, twice or never."""

    @initialize(
        algorithm=st.sampled_from(
            [
                FedSUM(),
                FedSUM(divide_by_seen=True),
                FedSUMB(),
                FedSUMCR(),
                FedSUMCR(divide_by_seen=True),
                FedSUMCR(printed_average=True),
                SCAFFOLD(),
            ]
        ),
        on_loss=st.sampled_from(["reset", "table"]),
        quorum=st.integers(1, 3),
    )
    def begin(self, algorithm, on_loss, quorum):
        self.begin_with(algorithm, on_loss, quorum)

    def begin_with(self, algorithm, on_loss, quorum):
        self.folder = self.make_folder()
        self.algorithm, self.on_loss, self.quorum = algorithm, on_loss, quorum
        self.ledger = self.fresh()
        self.checkpoints = [copy.deepcopy(self.ledger.state)]
        self.disks = [Disk(self.folder, self.ledger.state.job, i) for i in range(N)]
        self.orders, self.replies = [], []

    make_folder = staticmethod(lambda: None)  # set by the test

    def fresh(self):
        rules = MergeRules(quorum=self.quorum, on_loss=self.on_loss, norm_limit=0)
        return Ledger(self.algorithm, TASK.init(0), N, options(eta_l=lambda t: 0.05 / (1 + t / 10)), rules)

    def save(self):
        self.checkpoints.append(copy.deepcopy(self.ledger.state))

    def restart(self, state):
        self.ledger = self.fresh()
        self.ledger.state = copy.deepcopy(state)
        self.replies.clear()  # a new run polls only for replies to its own messages; old orders may still arrive

    def work(self, order, fault=None):
        disk = self.disks[order.step_id.client]
        disk.fault = fault
        try:
            return answer(order, self.algorithm, TASK, disk)
        except (Killed, OSError):
            return None
        finally:
            disk.fault = None

    @rule(clients=st.sets(st.integers(0, N - 1), min_size=1))
    def ask(self, clients):
        self.orders += [self.ledger.order(i) for i in sorted(clients) if self.ledger.eligible(i)]

    @precondition(lambda self: self.orders)
    @rule(
        data=st.data(),
        again=st.booleans(),
        fault=st.sampled_from([None, None, None, "full", "before", "after", "promoted"]),
    )
    def order_arrives(self, data, again, fault):
        place = data.draw(st.integers(0, len(self.orders) - 1))
        order = self.orders[place] if again else self.orders.pop(place)
        reply = self.work(order, fault)
        if reply:
            self.replies.append(reply)

    @rule()
    def all_arrive(self):
        """Without this rule, long series of successful rounds would be rare."""
        for i in range(N):
            if self.ledger.eligible(i):
                self.ledger.receive(self.work(self.ledger.order(i)))
            if i in self.ledger.take_outdated():
                self.ledger.receive(self.work(self.ledger.order(i)))

    @precondition(lambda self: self.replies)
    @rule(data=st.data(), again=st.booleans())
    def reply_arrives(self, data, again):
        place = data.draw(st.integers(0, len(self.replies) - 1))
        reply = self.replies[place] if again else self.replies.pop(place)
        self.ledger.receive(reply)

    @precondition(lambda self: self.replies)
    @rule(data=st.data())
    def reply_is_lost(self, data):
        self.replies.pop(data.draw(st.integers(0, len(self.replies) - 1)))

    @rule(killed=st.sampled_from([False, False, False, True]))
    def deadline(self, killed):
        self.ledger.close_round()
        if killed:  # between merge and checkpoint
            self.restart(self.checkpoints[-1])
        else:
            self.save()

    @rule()
    def server_is_killed(self):
        self.restart(self.checkpoints[-1])

    @rule(data=st.data())
    def server_is_restored_from_an_old_backup(self, data):
        self.restart(self.checkpoints[data.draw(st.integers(0, len(self.checkpoints) - 1))])

    @rule(client=st.integers(0, N - 1))
    def state_is_deleted(self, client):
        self.disks[client].wipe()

    @invariant()
    def y_is_the_sum_of_all_h(self):
        if not hasattr(self, "ledger"):
            return
        state, name = self.ledger.state, STATE_OF[self.algorithm.name]
        merged = {i: self.disks[i].written[last.version][name] for i, last in state.last.items()}
        if self.on_loss == "table":
            assert self.ledger.drift() <= 1e-12
            for i, h in merged.items():
                (whole,) = state.table[i].values()
                torch.testing.assert_close(whole, h, rtol=0, atol=1e-12)
        else:
            total = sum(merged.values(), torch.zeros(3, dtype=torch.float64))
            server = state.server["c"] * N if name == "c" else state.server["y"]
            torch.testing.assert_close(server, total, rtol=0, atol=1e-12)

    def teardown(self):
        """After the last fault, all clients are merged again, and server and clients have the same states."""
        if not hasattr(self, "ledger"):
            return
        self.ledger.state.strikes.clear()
        t = self.ledger.state.t
        for _ in range(3 + N):
            self.all_arrive()
            self.ledger.close_round()
        assert self.ledger.state.t >= t + 2
        assert len(self.ledger.state.last) == N
        self.y_is_the_sum_of_all_h()
        for i, last in self.ledger.state.last.items():
            assert self.disks[i].read().find(last.version)


def test_no_fault_breaks_the_sum(tmp_path_factory, monkeypatch):
    for place in ("base.files", "flower.storage.client_store"):  # thousands of writes need no fsync in a test
        monkeypatch.setattr(f"fedsum.{place}.flush", lambda path: None)

    class InAFolder(Federation):
        make_folder = staticmethod(lambda: tmp_path_factory.mktemp("clients"))

    run_state_machine_as_test(
        InAFolder,
        settings=settings(
            max_examples=150,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
        ),
    )


# Cases that the state machine above covers only by chance, or not at all.


class Direct:
    """Server and clients in one process; the tests inject the faults."""

    def __init__(self, folder, algorithm, task=TASK, *, eta_l=0.05, **rules):
        self.algorithm, self.task = algorithm, task
        self.ledger = Ledger(
            algorithm, task.init(0), task.n, options(eta_l=eta_l), MergeRules(**{"norm_limit": 0} | rules)
        )
        self.disks = [Disk(folder, self.ledger.state.job, i) for i in range(task.n)]

    def work(self, order):
        return answer(order, self.algorithm, self.task, self.disks[order.step_id.client])

    def round(self, clients, scheduled=None, confirming=None):
        for i in clients:
            assert self.ledger.receive(self.work(self.ledger.order(i))) is None
        outcome = self.ledger.close_round(scheduled)
        for i in outcome.merged if confirming is None else confirming:
            farewell = self.ledger.farewell(i)
            if farewell:
                assert self.ledger.confirm_farewell(self.work(farewell)) is None
        return outcome


OPTIONS = [FedAWE(clip=0.5), KnownFedAvg(p=np.linspace(0.2, 0.8, 7)), ServerOpt(FedSUM(), Adam(0.01))]
OPTIONS += [kind(divide_by_seen=True) for kind in (FedSUM, FedSUMB, FedSUMCR, MIFA)]
OPTIONS += [Compressed(FOCUS(), RandomK(0.5)), Compressed(FedSUMCR(), Int8(), beta=0.5)]


@pytest.mark.parametrize("algorithm", [cls() for cls in ALGORITHMS.values()] + OPTIONS, ids=repr)
def test_without_faults_it_is_the_simulation(algorithm, tmp_path):
    task = noisy()
    schedule = third_empty(task.n, rounds=15)
    run = simulate(task, algorithm, schedule, rounds=15, local_steps=2, eta_l=decaying, dtype=torch.float64)
    net = Direct(tmp_path, algorithm, task, eta_l=decaying)
    for t in range(15):
        active = schedule.active(0, t)
        assert net.round(active.tolist(), scheduled=len(active)).advanced
    for name, value in run.server.items():
        torch.testing.assert_close(net.ledger.state.server[name], value, rtol=1e-12, atol=1e-12)


def test_a_reply_made_from_another_state_is_refused(tmp_path):
    net = Direct(tmp_path, FedSUM())
    net.round([0, 1])
    reply = net.work(net.ledger.order(0))
    for wrong in ({"base": NEVER}, {"epoch": 1}, {"step": 4}, {"job": "other"}):
        assert net.ledger.receive(replace(reply, step_id=replace(reply.step_id, **wrong))) == "answers another order"
    assert net.ledger.receive(replace(reply, order="0" * 64)) == "answers another order"
    assert net.ledger.receive(replace(reply, version="v2")) == "does not name the version of its state"
    assert net.ledger.receive(reply) is None
    assert net.ledger.receive(reply) == "is not the client's first in this round"
    assert net.ledger.close_round().merged == (0,)


def test_below_the_quorum_nothing_moves(tmp_path):
    net = Direct(tmp_path, FedSUM(), quorum=3)
    net.round([0, 1, 2, 3])
    before = copy.deepcopy(net.ledger.state)
    outcome = net.round([0, 1])
    assert not outcome.advanced
    assert outcome.merged == ()
    assert net.ledger.state.t == before.t
    assert torch.equal(net.ledger.state.server["x"], before.server["x"])
    first = net.disks[0].read().pending
    assert net.round([0, 1, 2]).merged == (0, 1, 2)  # repeated orders get the same replies
    assert torch.equal(net.disks[0].read().pending.state["h"], first.state["h"])


def test_a_missed_farewell_is_an_absence(tmp_path):
    """FedAWE: the client keeps its old model, and the server the client's old last step."""
    net = Direct(tmp_path, FedAWE())
    net.round(range(N))
    x_before = net.disks[0].read().pending.state["x"]
    net.round(range(N), confirming=[1, 2, 3])
    assert {i: last.step for i, last in net.ledger.state.last.items()} == {0: 2, 1: 3, 2: 3, 3: 3}
    reply = net.work(net.ledger.order(0))
    merged = net.disks[0].read().merged
    assert reply.status == "done"
    assert torch.equal(merged.state["x"], x_before)
    assert int(merged.state["last"]) == 0  # its gap is now 2
    # The client has the farewell, but its acknowledgement was lost: the same result.
    net.ledger.receive(reply)
    net.ledger.close_round()
    net.work(net.ledger.farewell(0))
    assert int(net.disks[0].read().pending.state["last"]) == 2
    assert net.work(net.ledger.order(0)).status == "done"
    assert int(net.disks[0].read().merged.state["last"]) == 0


def test_after_a_reset_late_joiners_start_from_the_kept_model(tmp_path):
    net = Direct(tmp_path, FedSUMCR())
    assert net.ledger.order(3).start is not None
    for _ in range(3):
        net.round([0, 1, 2])
    assert net.ledger.order(0).start is None  # x^(0) is sent once
    x = net.ledger.state.server["x"].clone()
    net.disks[1].wipe()
    outcome = net.round([0, 1])
    assert "client 1 has lost its state" in outcome.reset
    state = net.ledger.state
    assert (state.epoch, state.first_round, state.t) == (1, 3, 3)
    assert torch.equal(state.server["x"], x)
    assert not state.server["y"].any()
    assert torch.equal(net.ledger.order(3).start, x)
    for _ in range(3):
        assert net.round(range(N)).advanced
    h = sum(net.disks[i].read().pending.state["h"] for i in range(N))
    torch.testing.assert_close(state.server["y"], h, rtol=0, atol=1e-12)


def test_after_a_reset_rates_go_on_and_the_epoch_counts_its_own_rounds(tmp_path):
    net = Direct(tmp_path, FedSUM(), eta_l=decaying)
    for _ in range(3):
        net.round(range(N))
    before = net.ledger.record(3)
    net.disks[1].wipe()
    assert net.round([0, 1]).reset
    assert (before.t, before.eta_l) == (3, decaying(3))
    # The new epoch has seen no client yet.
    assert net.ledger.record(3) == replace(before, t=0, seen=0)
    assert net.ledger.order(0).terms.now == replace(before, t=0, seen=0)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"quorum": 0}, "quorum = 0: a whole number from 1"),
        ({"quorum": N + 1}, r"quorum = 5: a whole number from 1 to 4 \(clients\)"),
        ({"quorum": 1.5}, "quorum = 1.5"),
        ({"on_loss": "forget"}, "on_loss = 'forget': 'reset' or 'table'"),
        ({"norm_limit": -1}, "norm_limit = -1: a finite number, at least 0"),
        ({"norm_limit": float("nan")}, "norm_limit = nan"),
    ],
)
def test_wrong_rules_are_refused(rules, message, tmp_path):
    with pytest.raises(InputError, match=message):
        Direct(tmp_path, FedSUM(), **rules)
    if rules != {"quorum": N + 1}:  # wrong for every algorithm and N
        with pytest.raises(InputError):
            MergeRules(**rules)


def test_with_a_table_only_the_loser_begins_anew(tmp_path):
    net = Direct(tmp_path, SCAFFOLD(), on_loss="table")
    net.round(range(N))
    net.disks[1].wipe()
    assert net.round([0, 1, 2]).merged == (0, 2)
    assert (net.ledger.state.epoch, net.ledger.state.t) == (0, 2)
    assert net.ledger.drift() < 1e-12
    assert net.round(range(N)).merged == (0, 1, 2, 3)
    c = sum(net.disks[i].read().pending.state["c"] for i in range(N)) / N
    torch.testing.assert_close(net.ledger.state.server["c"], c, rtol=0, atol=1e-12)


def test_the_clients_seen_are_those_in_the_sums(tmp_path):
    """A client that lost its state stays in the sums, an evicted one does not, a new epoch has seen none."""
    net = Direct(tmp_path / "table", FedSUM(divide_by_seen=True), on_loss="table")
    seen = lambda: net.ledger.order(0).terms.now.seen  # noqa: E731
    assert seen() == 0
    net.round([0, 1])
    assert seen() == 2
    net.round([1, 2])
    assert seen() == 3
    net.disks[1].wipe()
    net.round([1, 2])
    assert seen() == 3
    net.ledger.evict(1)
    assert seen() == 2
    net.ledger.begin_epoch()
    assert seen() == 0


@pytest.mark.parametrize("algorithm", [SCAFFOLDM(), ServerOpt(FedSUM(), Adam(0.01))], ids=lambda a: a.label)
def test_a_table_is_compared_with_sums_not_with_momenta(algorithm, tmp_path):
    net = Direct(tmp_path, algorithm, on_loss="table")
    for active in (range(N), [0], [], [1, 2]):
        net.round(active, scheduled=len(active))
    assert net.ledger.drift() < 1e-12
    name = "c" if isinstance(algorithm, SCAFFOLDM) else "y"
    net.ledger.state.server[name] = net.ledger.state.server[name] * 1.5
    assert net.ledger.drift() == pytest.approx(1 / 3)


def test_an_algorithm_may_refuse_a_deployment(tmp_path):
    with pytest.raises(InputError, match="3 probabilities for 4 clients"):
        Direct(tmp_path, KnownFedAvg(p=[0.5] * 3))


def test_a_table_is_only_for_uplinks_that_sum_up(tmp_path):
    sums = {name for name, cls in ALGORITHMS.items() if telescopes(cls())}
    assert sums == {"FedSUM", "FedSUMB", "FedSUMCR", "SCAFFOLD", "SCAFFOLDM", "MIFA", "FedVARP", "FOCUS"}
    with pytest.raises(InputError, match="on_loss = 'table': FedAWE"):
        Direct(tmp_path, FedAWE(), on_loss="table")


def test_a_client_that_keeps_losing_its_state_is_skipped_for_a_while(tmp_path):
    net = Direct(tmp_path, FedSUM())
    asked = []
    for _ in range(120):
        asked.append(net.ledger.eligible(2))
        for i in range(N):
            if net.ledger.eligible(i):
                reply = net.work(net.ledger.order(i))
                liar = i == 2 and reply.step_id.base != NEVER
                net.ledger.receive(replace(reply, status="lost") if liar else reply)
        net.ledger.close_round()
    # It is merged once per epoch before it can lose anything: strikes in attempts 1, 3 and 5, then 52, 54 and 56.
    assert [i for i in range(1, 120) if asked[i] != asked[i - 1]] == [6, 51, 57, 102, 108]
    assert net.ledger.state.epoch == net.ledger.state.losses[2] == 9
    assert net.ledger.client_records()[2].skipped == 33


def test_a_client_that_claims_to_be_ahead_is_asked_once_more(tmp_path):
    net = Direct(tmp_path, FedSUM())
    net.round(range(N))
    reply = net.work(net.ledger.order(0))
    assert net.ledger.receive(replace(reply, status="ahead", serial=2**62)).startswith(f"claims serial {2**62}")
    claim = replace(reply, status="ahead", serial=40)
    assert net.ledger.receive(claim) is None
    assert net.ledger.take_outdated() == {0}
    assert net.ledger.take_outdated() == set()
    assert net.ledger.order(0).serial == 41
    assert net.ledger.receive(claim) == "reports 'ahead' again"
    assert net.ledger.receive(reply) is None  # the order's content is the same
    assert net.round(range(1, N)).merged == (0, 1, 2, 3)
    assert net.ledger.state.epoch == 0


def test_a_new_client_has_nothing_to_lose(tmp_path):
    net = Direct(tmp_path, FedSUM())
    assert (
        net.ledger.receive(replace(net.work(net.ledger.order(0)), status="lost"))
        == "reports 'lost', but had no state to lose"
    )
    plain = Direct(tmp_path, FedAvg())
    refusal = plain.ledger.receive(replace(plain.work(plain.ledger.order(0)), status="lost"))
    assert refusal == "reports 'lost', but clients of this algorithm have no state"


@pytest.mark.parametrize(
    ("spoil", "refusal"),
    [
        (lambda v: {"delta": v * float("nan")}, "delta holds NaN or infinity"),
        (lambda v: {"delta": v / 0}, "delta holds NaN or infinity"),
        (lambda v: {"delta": v[:-1]}, "delta has shape [2], expected [3]"),
        (lambda v: {"delta": v.float()}, "delta is torch.float32, expected torch.float64"),
        (lambda v: {"gamma": v}, "holds ['gamma'], expected ['delta']"),
        (lambda v: {}, "holds [], expected ['delta']"),
    ],
)
def test_a_refused_uplink_leaves_both_sides_as_they_were(spoil, refusal, tmp_path):
    net = Direct(tmp_path, FedSUM(), norm_limit=10.0)
    for _ in range(3):
        net.round(range(N))
    reply = net.work(net.ledger.order(0))
    assert refusal in net.ledger.receive(replace(reply, vectors=spoil(reply.vectors["delta"])))
    assert net.round([1, 2, 3]).merged == (1, 2, 3)  # the round is merged without client 0
    assert net.round(range(N)).merged == (0, 1, 2, 3)  # and the next round with it
    h = sum(net.disks[i].read().pending.state["h"] for i in range(N))
    torch.testing.assert_close(net.ledger.state.server["y"], h, rtol=0, atol=1e-12)


def test_a_damaged_file_is_a_lost_state(tmp_path):
    net = Direct(tmp_path, FedSUM())
    net.round([0])
    path = net.disks[0].folder / "pending.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    assert net.work(net.ledger.order(0)).status == "lost"


def test_a_job_may_not_lead_out_of_the_folder(tmp_path):
    for job in ("../x", "", "a/b", ".", "x" * 65):
        with pytest.raises(InputError, match="job ="):
            ClientStore(tmp_path, job, 0)


def test_a_slower_process_does_not_undo_what_a_later_one_did(tmp_path):
    net = Direct(tmp_path, FedSUM())
    net.round([0, 1])
    old = net.ledger.order(0)
    net.round([1])
    net.round([0, 1])
    before = net.disks[0].read()
    assert net.work(old).status == "ahead"
    assert not net.disks[0].save(StateVersion("v", old.step_id.base, old.id, old.serial, {}, {}))
    assert net.disks[0].read().pending.version == before.pending.version


def test_a_server_restored_from_an_old_backup_does_not_take_what_it_cannot_place(tmp_path):
    net = Direct(tmp_path, FedSUM())
    backup = copy.deepcopy(net.ledger.state)
    net.round([0, 1])
    net.round([1])
    net.work(net.ledger.order(0))  # pending: round 2, computed from the version of round 0
    net.ledger.state = backup
    for _ in range(2):
        net.round([2, 3])
    reply = net.work(net.ledger.order(0))  # the same round, but this server has merged nothing from client 0
    assert reply.status == "ahead"
    assert net.ledger.receive(reply) is None
    assert net.ledger.receive(net.work(net.ledger.order(0))) is None
    net.ledger.close_round()
    h = sum(net.disks[i].read().pending.state["h"] for i in (0, 2, 3))
    torch.testing.assert_close(net.ledger.state.server["y"], h, rtol=0, atol=1e-12)
    assert net.work(net.ledger.order(0)).status == "done"
