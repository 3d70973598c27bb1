"""Attacks on the commit protocol, one per row of the issue's table: y stays the sum of all h_i, x within its bound."""

import copy
import itertools
import shutil
from dataclasses import replace

import pytest
import torch

from fedsum import SCAFFOLD, FedSUM
from fedsum.flower.client_protocol import answer
from fedsum.flower.client_store import ClientStore
from fedsum.flower.ledger import Ledger
from fedsum.flower.merge_rules import MergeRules
from fedsum.tasks import Quadratic
from fedsum.training.options import Options

MODES = pytest.mark.parametrize("on_loss", ["reset", "table"])


class Irreproducible(Quadratic):
    """Gradients with noise that is not keyed: the same order computed twice gives two results."""

    draws = itertools.count()

    def gradient(self, x, i, batch):
        noise = torch.Generator().manual_seed(next(self.draws))
        return super().gradient(x, i, batch) + 0.1 * torch.randn(self.d, generator=noise, dtype=x.dtype)


class Net:
    """A ledger and its clients in one process. Each client has a folder that a test may move away."""

    def __init__(self, folder, algorithm, task, *, dtype=torch.float64, eta_l=0.05, K=2, **rules):
        self.folder, self.algorithm, self.task = folder, algorithm, task.to(torch.device("cpu"), dtype)
        self.options = Options(rounds=10, local_steps=K, eta_l=eta_l, batch_size=1)
        self.rules = MergeRules(**{"norm_limit": 0} | rules)
        self.ledger = Ledger(algorithm, self.task.init(0).to(dtype), task.n, self.options, self.rules)

    def store(self, client):
        return ClientStore(self.folder, self.ledger.state.job, client)

    def work(self, order):
        return answer(order, self.algorithm, self.task, self.store(order.step_id.client))

    def round(self, clients=None, lie=lambda reply: reply):
        asked = [i for i in (range(self.task.n) if clients is None else clients) if self.ledger.eligible(i)]
        for i in asked:
            self.ledger.receive(lie(self.work(self.ledger.order(i))))
        return self.ledger.close_round()

    def settle(self):
        """Rounds without faults until everyone's reply is merged twice in a row."""
        for _ in range(70):
            if len(self.round().merged) == self.task.n and len(self.round().merged) == self.task.n:
                return
        raise AssertionError("the federation does not recover")

    def gap(self):
        """||y - sum h|| / ||y|| with the h that the clients' own disks hold."""
        server = self.ledger.state.server
        y = server["y"] if "y" in server else server["c"] * self.task.n
        name = "h" if "y" in server else "c"
        total = sum(self.store(i).read().pending.state[name].double() for i in self.ledger.state.last)
        return float((y.double() - total).norm() / y.norm())


def move(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        shutil.rmtree(target)
    if source.exists():
        source.rename(target)


# Row 5: the same (epoch, step), made twice with different content


@MODES
@pytest.mark.parametrize("algorithm", [FedSUM(), SCAFFOLD()], ids=repr)
def test_a_state_disk_that_vanishes_and_returns(algorithm, on_loss, tmp_path):
    """Also two nodes with one id: both answer the same order, and only one answer is merged."""
    net = Net(tmp_path / "now", algorithm, Irreproducible.random(4, 3), on_loss=on_loss)
    disk = net.store(0).folder
    net.work(net.ledger.order(0))  # its reply is lost
    move(disk, tmp_path / "away")
    net.round()  # merges what the other disk computed
    move(tmp_path / "away", disk)
    net.settle()
    assert net.gap() < 1e-12


@MODES
def test_settings_changed_while_an_old_app_still_runs(on_loss, tmp_path):
    net = Net(tmp_path, FedSUM(), Quadratic.random(4, 3), on_loss=on_loss)
    old_order = net.ledger.order(0)
    state = copy.deepcopy(net.ledger.state)
    net.ledger = Ledger(net.algorithm, net.task.init(0), 4, replace(net.options, local_steps=5), net.rules)
    net.ledger.state = state

    class Slow(ClientStore):
        """The old app's process saves its result after the new app's reply was merged."""

        def save(self, version):
            net.round()
            return super().save(version)

    answer(old_order, net.algorithm, net.task, Slow(tmp_path, state.job, 0))
    net.settle()
    assert net.gap() < 1e-12


# Rows 3 and 4: bounds on h_i


def scaled(liars, factor):
    def lie(reply):
        if reply.step_id.client not in liars or reply.status != "done":
            return reply
        return replace(reply, vectors={name: factor(value) for name, value in reply.vectors.items()})

    return lie


@MODES
def test_an_honest_client_back_after_55_rounds_is_merged(on_loss, tmp_path):
    """All gradients vanish at the optimum, so the change of a client's h since the first rounds is relatively large."""
    random = Quadratic.random(10, 3)
    net = Net(tmp_path, FedSUM(), Quadratic(random.curvature, torch.ones(10, 3)), eta_l=0.2, norm_limit=25.0)
    for _ in range(3):
        net.round()
    for _ in range(55):
        net.round(range(1, 10))
    assert 0 in net.round().merged
    assert net.ledger.state.outliers == {}
    for _ in range(20):
        net.round()
    torch.testing.assert_close(net.ledger.state.server["x"], net.task.optimum, rtol=0, atol=1e-2)


@MODES
def test_a_first_uplink_of_1e9_is_not_merged(on_loss, tmp_path):
    net = Net(tmp_path, FedSUM(), Quadratic.random(10, 3), norm_limit=25.0, on_loss=on_loss)
    outcome = net.round(lie=scaled({3}, lambda value: value * 1e9))
    assert outcome.merged == (0, 1, 2, 4, 5, 6, 7, 8, 9)
    assert float(net.ledger.state.server["y"].norm()) < 100


@MODES
def test_one_of_ten_that_sends_20_times_the_median_cannot_move_x_without_bound(on_loss, tmp_path):
    net = Net(tmp_path, FedSUM(), Quadratic.random(10, 3, noise=0.1), norm_limit=25.0, on_loss=on_loss)
    norms = []
    for _ in range(200):
        net.round(range(1, 10))
        honest = [float(net.store(i).read().pending.uplink["delta"].norm()) for i in range(1, 10)]
        norms.append(sorted(honest)[4])
        push = torch.full((3,), 20 * norms[-1] / 3**0.5, dtype=torch.float64)
        net.round(lie=scaled({0}, lambda value, push=push: push))
    away = float((net.ledger.state.server["x"] - net.task.optimum).norm())
    assert away < 100


# Row 8: strikes, restores, quorums


@MODES
def test_three_restores_do_not_exclude_clients(on_loss, tmp_path):
    net = Net(tmp_path, FedSUM(), Quadratic.random(4, 3), on_loss=on_loss)
    for _ in range(4):
        backup = copy.deepcopy(net.ledger.state)
        for _ in range(3):
            net.round()
        net.ledger.state = backup
        net.round()
        net.round()
    assert all(net.ledger.eligible(i) for i in range(4))
    net.settle()
    assert net.gap() < 1e-12


@MODES
def test_a_quorum_of_all_does_not_wait_for_a_client_that_loses_its_state(on_loss, tmp_path):
    net = Net(tmp_path, FedSUM(), Quadratic.random(4, 3), quorum=4, on_loss=on_loss)
    for _ in range(30):
        shutil.rmtree(net.store(2).folder, ignore_errors=True)
        net.round()
    assert net.ledger.state.t > 10


# Row 12: drift


def test_float32_does_not_drift(tmp_path):
    net = Net(tmp_path, FedSUM(), Quadratic.random(3, 2, noise=1.0), dtype=torch.float32)
    for t in range(600):
        net.round([t % 3, (t + 1) % 3])
    net.settle()
    print("gap", net.gap())
    assert net.gap() < 1e-9
