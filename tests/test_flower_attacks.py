"""Attacks on the commit protocol: y stays the sum of all h_i, and liars move x by no more than the bound."""

from dataclasses import replace

import pytest
import torch
from flower_world import Irreproducible, MemoryDisk, snapshot

from fedsum import MIFA, SCAFFOLD, FedAvg, FedSUM, FedSUMCR, InputError
from fedsum.flower.protocol import ClientVersions, Ledger, MergeRules, answer
from fedsum.flower.protocol.norm_bound import NormSketch
from fedsum.tasks import Quadratic
from fedsum.training.options import Options

MODES = pytest.mark.parametrize("on_loss", ["reset", "table"])


class Net:
    """A ledger and its clients in one process. `lie(order, reply)` changes a reply."""

    def __init__(self, algorithm, task, *, dtype=torch.float64, eta_l=0.05, K=2, **rules):
        self.algorithm, self.task = algorithm, task.to(torch.device("cpu"), dtype)
        self.options = Options(rounds=10, local_steps=K, eta_l=eta_l, batch_size=1)
        self.rules = MergeRules(**{"norm_limit": 0} | rules)
        self.ledger = Ledger(algorithm, self.task.init(0).to(dtype), task.n, self.options, self.rules)
        self.disks = [MemoryDisk({}) for _ in range(task.n)]

    def work(self, order):
        return answer(order, self.algorithm, self.task, self.disks[order.step_id.client])

    def round(self, clients=None, lie=lambda order, reply: reply, scheduled=None):
        ledger = self.ledger
        asked = [i for i in (range(self.task.n) if clients is None else clients) if ledger.eligible(i)]
        for again in (False, True):
            for i in ledger.take_outdated() if again else asked:
                order = ledger.order(i)
                ledger.receive(lie(order, self.work(order)))
        return ledger.close_round(scheduled)

    def settle(self):
        """Rounds without faults until all that are not evicted are merged twice in a row."""
        staying = self.task.n - len(self.ledger.state.evicted)
        for _ in range(70):
            if len(self.round().merged) == staying and len(self.round().merged) == staying:
                return
        raise AssertionError("the federation does not recover")

    def gap(self):
        """||y - sum h|| / ||y|| with the h that the clients' own disks hold."""
        server = self.ledger.state.server
        y, name = (server["y"], "h") if "y" in server else (server["c"] * self.task.n, "c")
        total = sum(self.disks[i].read().pending.state[name].double() for i in self.ledger.state.last)
        return float((y - total).norm() / y.norm())


# The same (epoch, step), made twice with different content


@MODES
@pytest.mark.parametrize("algorithm", [FedSUM(), SCAFFOLD()], ids=repr)
def test_a_state_disk_that_vanishes_and_returns(algorithm, on_loss):
    """Also two nodes with one id: both answer the same order, and only one answer is merged.

    Row: a client computes the same step twice with different results => the results are two versions of its state,
    and the server knows which one it merged. This covers changed settings, gradients that are not reproducible, two
    nodes with one id, and a disk that vanishes and returns.
    """
    net = Net(algorithm, Irreproducible.random(4, 3), on_loss=on_loss)
    away = net.disks[0]
    net.work(net.ledger.order(0))  # its reply is lost
    net.disks[0] = MemoryDisk({})
    net.round()  # merges what the other disk computed
    net.disks[0] = away
    net.settle()
    assert net.gap() < 1e-12


@MODES
def test_settings_changed_while_an_old_app_still_runs(on_loss):
    """Row: a client computes the same step twice with different results."""
    net = Net(FedSUM(), Quadratic.random(4, 3), on_loss=on_loss)
    old_order, state = net.ledger.order(0), snapshot(net.ledger.state)
    net.ledger = Ledger(net.algorithm, net.task.init(0), 4, replace(net.options, local_steps=5), net.rules)
    net.ledger.restore(state)
    disk = net.disks[0]

    class Slow:
        """The old app's process saves its result after the new app's reply was merged."""

        read = staticmethod(disk.read)

        def save(self, version):
            net.round()
            return disk.save(version)

    assert answer(old_order, net.algorithm, net.task, Slow()).status == "ahead"
    net.settle()
    assert net.ledger.state.epoch == 0  # nothing was lost
    assert net.gap() < 1e-12


@MODES
def test_two_processes_with_one_order_send_one_result(on_loss):
    """The gradients are not reproducible. The result that was saved first is the one that both processes send.

    Row: a client computes the same step twice with different results.
    """
    net = Net(FedSUM(), Irreproducible.random(4, 3), on_loss=on_loss)
    order, disk, sent = net.ledger.order(0), net.disks[0], []

    class Slow:
        read = staticmethod(disk.read)

        def save(self, version):
            sent.append(net.work(order))
            return disk.save(version)

    sent.append(answer(order, net.algorithm, net.task, Slow()))
    assert [reply.status for reply in sent] == ["done", "done"]
    assert {reply.version for reply in sent} == {disk.read().pending.version}
    assert torch.equal(sent[0].vectors["delta"], sent[1].vectors["delta"])
    assert net.ledger.receive(sent[0]) is None
    net.ledger.close_round()
    net.settle()
    assert net.ledger.state.epoch == 0  # nothing was lost
    assert net.gap() < 1e-12


def test_another_rule_for_losses_is_refused():
    """A table that begins in the middle of a run would lack what was merged before.

    Row: a setting that changes results is changed on resume.
    """
    net = Net(FedSUM(), Quadratic.random(4, 3))
    net.round()
    other = Net(FedSUM(), Quadratic.random(4, 3), on_loss="table")
    with pytest.raises(InputError, match="on_loss = 'table': the saved state was made with 'reset'"):
        other.ledger.restore(net.ledger.state)


# Bounds on h_i


def scaled(liars, factor):
    """Liars multiply their uplink."""

    def lie(order, reply):
        vectors = {name: value * factor for name, value in reply.vectors.items()}
        return replace(reply, vectors=vectors) if reply.step_id.client in liars else reply

    return lie


class Pushing:
    """Liars that always push in the same direction, as hard as the server allows them to.

    With `again`, they push in every round, as if only the change of their h_i were bounded.
    """

    def __init__(self, liars, d, *, again=False):
        self.liars, self.again, self.h = liars, again, {}
        self.direction = torch.ones(d, dtype=torch.float64) / d**0.5

    def __call__(self, order, reply):
        client = order.step_id.client
        if client not in self.liars:
            return reply
        zero = torch.zeros_like(self.direction)
        before = self.h.get(client, zero) if order.step_id.base and not self.again else zero
        self.h[client] = self.direction * (order.terms.clip or 1e9)
        (name,) = reply.vectors
        return replace(reply, vectors={name: self.h[client] - before})


@MODES
def test_an_honest_client_back_after_55_rounds_is_merged(on_loss):
    """All gradients vanish at the optimum, so the change of a client's h since the first rounds is relatively large.

    Row: an honest client returns after many rounds => merged: the bound is on its h_i, not on the change.
    """
    random = Quadratic.random(10, 3)
    task = Quadratic(random.curvature, torch.ones(10, 3, dtype=torch.float64))
    net = Net(FedSUM(), task, eta_l=0.2, norm_limit=25.0, on_loss=on_loss)
    for _ in range(3):
        net.round()
    for _ in range(55):
        net.round(range(1, 10))
    assert 0 in net.round().merged
    assert net.ledger.state.outliers == {}
    for _ in range(60):
        net.round()
    torch.testing.assert_close(net.ledger.state.server["x"], net.task.optimum, rtol=0, atol=1e-3)


@MODES
@pytest.mark.parametrize("algorithm", [FedSUM(), SCAFFOLD(), MIFA(), FedAvg()], ids=repr)
def test_a_first_uplink_of_1e9_is_not_merged(algorithm, on_loss):
    """Row: a client sends a false uplink => refused from the first round on, if the norm of the resulting h_i exceeds
    the bound. Within the bound it is merged, see [the bounds](threats.md#bounds-on-malicious-clients).
    """
    if on_loss == "table" and algorithm == FedAvg():
        on_loss = "reset"
    net = Net(algorithm, Quadratic.random(10, 3), norm_limit=25.0, on_loss=on_loss)
    outcome = net.round(lie=scaled({3}, 1e9))
    assert outcome.merged == (0, 1, 2, 4, 5, 6, 7, 8, 9)
    assert outcome.refused[3].startswith("its h has norm")
    record = net.ledger.client_records()[3]
    assert (record.outliers, record.strikes, record.round) == (1, 1, -1)
    assert all(float(value.norm()) < 100 for value in net.ledger.state.server.values())


def test_until_three_clients_are_measured_nothing_is_merged():
    """Row: a client sends a false uplink."""
    net = Net(FedSUM(), Quadratic.random(4, 3), norm_limit=25.0)
    assert net.ledger.needed(None) == 3
    assert not net.round([0], lie=scaled({0}, 1e9)).advanced
    # With a schedule the rounds go on: two clients are measured in rounds of their own, the third one is merged.
    scheduled = Net(FedSUM(), Quadratic.random(4, 3), norm_limit=25.0)
    liar = scaled({0}, 1e9)
    assert [scheduled.round([i], liar, scheduled=1).merged for i in (0, 1, 2, 0)] == [(), (), (2,), ()]
    assert scheduled.ledger.state.t == 3
    assert scheduled.ledger.state.outliers == {0: 1}


@MODES
@pytest.mark.parametrize("again", [False, True], ids=["up to the bound", "again in every round"])
@pytest.mark.parametrize("liars", [{0}, {0, 1, 2, 3}], ids=["one of ten", "four of ten"])
def test_liars_move_x_by_no_more_than_the_bound(liars, again, on_loss):
    """The bound of docs/deploy/threats.md, for liars that know it and use it up; without it, x moves without end.

    Row: a client sends a false uplink.
    """
    limit, task = 5.0, Quadratic.random(10, 3)
    net = Net(FedSUM(), task, norm_limit=limit, on_loss=on_loss, eta_l=0.1)
    honest = [i for i in range(10) if i not in liars]
    first = max(float((task.curvature[i] @ task.centers[i]).norm()) for i in honest)  # at x^(0) = 0
    pushing, xs = Pushing(liars, 3, again=again), []
    for _ in range(400):
        net.round(lie=pushing)
        xs.append(net.ledger.state.server["x"])
        h = {i: net.disks[i].read().pending.state["h"] for i in honest if i in net.ledger.state.last}
        added = net.ledger.state.server["y"] - sum(h.values())
        assert float(added.norm()) <= len(liars) * limit * 1.05 * first
    A, b = task.curvature[honest], (task.curvature[honest] @ task.centers[honest, :, None]).sum(0)
    optimum = torch.linalg.solve(A.sum(0), b)[:, 0]
    away, bound = float((xs[-1] - optimum).norm()), len(liars) * limit * first / (0.5 * len(honest))
    assert float((xs[-1] - xs[-50]).norm()) < 1e-3 * away  # x has come to rest
    assert 0.1 * bound < away <= bound


@MODES
def test_one_of_ten_that_sends_20_times_the_median_each_round(on_loss):
    """Row: a client sends a false uplink."""
    net = Net(FedSUM(), Quadratic.random(10, 3, noise=0.1), norm_limit=25.0, on_loss=on_loss)
    for _ in range(60):
        net.round(range(1, 10))
        typical = sorted(float(net.disks[i].read().pending.uplink["delta"].norm()) for i in range(1, 10))[4]

        def lie(order, reply, push=20 * typical):
            return replace(reply, vectors={"delta": torch.full((3,), push / 3**0.5).double()})

        net.round(lie=lambda order, reply, lie=lie: lie(order, reply) if order.step_id.client == 0 else reply)
    state = net.ledger.state
    y = sum(net.disks[i].read().pending.state["h"] for i in range(1, 10))
    assert float((state.server["y"] - y).norm()) <= 1.01 * net.ledger.limit


def test_gradients_are_clipped_by_honest_clients():
    """A client whose gradient is beyond the bound is merged with a shorter one, and its state is the shorter one."""
    random = Quadratic.random(5, 3)
    centers = random.centers.clone()
    centers[4] *= 1000
    net = Net(FedSUM(), Quadratic(random.curvature, centers), norm_limit=5.0)
    assert 4 in net.round().refused  # before it knows the bound
    assert 4 in net.round().merged
    h = net.disks[4].read().pending.state["h"]
    assert float(h.norm()) == pytest.approx(net.ledger.limit, rel=0.3)
    net.settle()
    assert net.gap() < 1e-12


def test_a_sketch_has_the_norm_of_its_vector_and_adds_up():
    draw = torch.Generator().manual_seed(0)
    sketch = NormSketch(7)
    spike = torch.zeros(10_000).double()
    spike[[0, 256, 512, 5000]] = 3.0
    for vector in (torch.randn(10_000, generator=draw).double(), spike, torch.ones(10_000).double()):
        size = float(sketch({"v": vector}).norm())
        assert size == pytest.approx(float(vector.norm()), rel=0.15)
        torch.testing.assert_close(sketch({"v": vector}) * 2 + sketch({"v": spike}), sketch({"v": vector * 2 + spike}))
    short = torch.randn(200, generator=draw).double()
    assert torch.equal(sketch({"v": short}), short)


def test_the_bound_of_a_long_vector_is_kept_by_its_sketch():
    net = Net(FedSUM(), Quadratic(torch.ones(4, 2000), torch.randn(4, 2000).double()), norm_limit=5.0)
    for _ in range(3):
        net.round()
    pushing, outcomes = Pushing({0}, 2000), []
    for _ in range(3):
        outcomes.append(net.round(lie=pushing))
    assert all(0 in outcome.merged for outcome in outcomes[1:])
    assert len(net.ledger.state.sketches[0]) == 256
    pushing.direction = pushing.direction * 3
    assert 0 in net.round(lie=pushing).refused


# Strikes, restores, quorums, evictions


@MODES
def test_three_restores_do_not_exclude_clients(on_loss):
    """Row: the server is restored from an old backup."""
    net = Net(FedSUM(), Quadratic.random(4, 3), on_loss=on_loss)
    for _ in range(4):
        backup = snapshot(net.ledger.state)
        for _ in range(3):
            net.round()
        net.ledger.restore(backup)
        net.round()
        net.round()
        assert not any(record.strikes for record in net.ledger.client_records())
    assert all(net.ledger.eligible(i) for i in range(4))
    net.settle()
    assert net.gap() < 1e-12


@MODES
def test_a_quorum_of_all_does_not_wait_for_a_client_that_loses_its_state(on_loss):
    """Row: the quorum is larger than the number of clients left => all clients that can be asked must reply, so that
    evicted and skipped clients do not stop the training.
    """
    net = Net(FedSUM(), Quadratic.random(4, 3), quorum=4, on_loss=on_loss)
    for _ in range(30):
        net.disks[2].versions = ClientVersions()
        net.round()
    assert net.ledger.state.t > 10
    assert net.ledger.needed(None) == 3


def test_offences_of_all_clients_in_turn_leave_someone_to_ask():
    net = Net(FedSUM(), Quadratic.random(2, 3))
    for attempt in range(6):
        net.round()
        net.ledger.strike(attempt % 2)
        net.ledger._attempt.heard.update({0, 1})
        net.ledger.close_round(0)
    assert net.ledger.state.strikes == {}


@pytest.mark.parametrize(
    ("algorithm", "on_loss", "done"),
    [
        (FedSUM(), "table", "subtracted"),
        (SCAFFOLD(), "table", "subtracted"),
        (FedSUMCR(), "reset", "epoch 1 begins"),
        (MIFA(), "reset", "subtracted"),
        (FedAvg(), "reset", "there is nothing of it to subtract"),
    ],
    ids=repr,
)
def test_an_evicted_client_leaves_the_sum(algorithm, on_loss, done):
    """Row: the operator evicts a client."""
    net = Net(algorithm, Quadratic.random(4, 3), on_loss=on_loss)
    for _ in range(3):
        net.round()
    x = net.ledger.state.server["x"]
    assert done in net.ledger.evict(2)
    assert torch.equal(net.ledger.state.server["x"], x)
    assert not net.ledger.eligible(2)
    assert net.ledger.client_records()[2].evicted
    net.settle()
    state = net.ledger.state
    assert 2 not in state.last
    if isinstance(algorithm, MIFA):
        torch.testing.assert_close(state.server["sum"], sum(row["G"] for row in state.rows.values()))
    elif not isinstance(algorithm, FedAvg):
        assert net.gap() < 1e-12
    net.ledger.readmit(2)
    net.settle()
    assert 2 in state.last
    assert isinstance(algorithm, MIFA | FedAvg) or net.gap() < 1e-12


@MODES
def test_the_bound_does_not_count_evicted_clients(on_loss):
    """A readmitted client is measured again, and its strikes are forgiven."""
    net = Net(FedSUM(), Quadratic.random(4, 3), norm_limit=25.0, on_loss=on_loss)
    net.round(lie=scaled({2}, 20))
    net.ledger.state.strikes[2] = [0, 0, 0]
    norms, limit = dict(net.ledger.state.first_norms), net.ledger.limit
    net.ledger.evict(2)
    assert net.ledger.state.first_norms == {i: norms[i] for i in (0, 1, 3)}
    assert net.ledger.limit == 25.0 * sorted(norms[i] for i in (0, 1, 3))[1] < limit
    assert net.ledger.order(0).terms.clip == net.ledger.limit
    net.ledger.readmit(2)
    assert net.ledger.eligible(2)
    net.settle()
    assert net.ledger.state.first_norms[2] < norms[2]
    assert net.gap() < 1e-12


def test_evictions_that_make_no_sense_are_refused():
    """Row: the quorum is larger than the number of clients left."""
    net = Net(FedSUM(), Quadratic.random(2, 3), quorum=2)
    order = net.ledger.order(1)
    assert "there is nothing of it to subtract" in net.ledger.evict(1)
    assert net.ledger.receive(net.work(order)) == "is from an evicted client"
    for client, message in ((1, "is evicted already"), (0, "is the last one"), (2, "a whole number from 0 to 1")):
        with pytest.raises(InputError, match=f"client = {client}: {message}"):
            net.ledger.evict(client)
    with pytest.raises(InputError, match="client = 0: is not evicted"):
        net.ledger.readmit(0)
    assert net.round().advanced  # the quorum of two is one now


# Drift


def drift(algorithm, rounds):
    net = Net(algorithm, Quadratic.random(3, 2, noise=1.0), dtype=torch.float32, K=1)
    for t in range(rounds):
        net.round([t % 3])
    net.settle()
    assert net.ledger.state.server["x"].dtype == torch.float32
    assert net.disks[0].read().pending.uplink.popitem()[1].dtype == torch.float32
    return net.gap()


@pytest.mark.parametrize("algorithm", [FedSUM(), FedSUMCR(), SCAFFOLD()], ids=repr)
def test_float32_does_not_drift(algorithm):
    """Row: the training runs for 20,000 rounds in float32 => y stays the sum of all h_i to 1e-10, see
    [Rounding](protocol.md#rounding).
    """
    assert drift(algorithm, 200) < 1e-12


@pytest.mark.slow
def test_float32_does_not_drift_in_20_000_rounds():
    """Row: the training runs for 20,000 rounds in float32."""
    assert drift(FedSUM(), 20_000) < 1e-10
