"""A federation in memory for random schedules of faults: server apps, clients, their disks and the messages between."""

import copy
import itertools
from dataclasses import replace

import torch

from fedsum import SCAFFOLD, FedSUM, FedSUMCR
from fedsum.flower.protocol import ClientVersions, Ledger, MergeRules, answer
from fedsum.tasks import Quadratic
from fedsum.training.options import Options

N, D = 4, 3
ALGORITHMS = (FedSUM(), FedSUMCR(), SCAFFOLD())
TASK = Quadratic.random(N, D, noise=0.3, seed=3)
SETTLING = 150
"""attempts at a round within which a federation without further faults must recover: strikes last 50"""


class Killed(BaseException):
    """A process that is killed at this point."""


class MemoryDisk:
    """A client's disk. A write may fail or kill the process."""

    def __init__(self, registry):
        self.versions, self.fault, self.registry = ClientVersions(), None, registry

    def read(self):
        return self.versions

    def save(self, version):
        fault, self.fault = self.fault, None
        if fault == "full":
            raise OSError("No space left on device")
        if fault == "before":
            raise Killed
        after = self.versions.after(version)
        if after is None:
            return False
        if fault == "promoted":  # killed between the two renames
            promoted = self.versions.promotes(version)
            self.versions = ClientVersions(self.versions.pending) if promoted else self.versions
            raise Killed
        self.versions = after
        self.registry[version.version] = version.state
        if fault == "after":
            raise Killed
        return True


class Irreproducible(Quadratic):
    """Each computation of a gradient has its own noise, whatever the order says."""

    draws = itertools.count()

    def gradient(self, x, i, batch):
        wave = torch.arange(1.0, D + 1, dtype=x.dtype) * next(self.draws)
        return super().gradient(x, i, batch) + 0.3 * torch.sin(wave)


def snapshot(state):
    """A copy of a server state. Its tensors and lists are replaced by the ledger, never changed."""
    copied = copy.copy(state)
    for name, value in vars(state).items():
        if isinstance(value, dict):
            setattr(copied, name, dict(value))
    copied.delays = copy.deepcopy(state.delays)
    return copied


class World:
    """Server, clients, disks and network. Events change it; `settle` ends all faults and measures the gap.

    Args:
      case: number of the case: algorithm, mode, reproducible gradients or not, quorum, and norm limit follow from it.
    """

    def __init__(self, case):
        self.algorithm, case = ALGORITHMS[case % 3], case // 3
        self.on_loss, case = ("reset", "table")[case % 2], case // 2
        norm_limit, case = (0.0, 25.0)[case % 2], case // 2
        irreproducible, quorum = case % 2, 1 + case // 2 % N
        self.task = Irreproducible(TASK.curvature, TASK.centers) if irreproducible else TASK
        self.rules = MergeRules(quorum=quorum, on_loss=self.on_loss, norm_limit=norm_limit)
        self.options = Options(rounds=100, local_steps=2, eta_l=0.05, batch_size=1)
        self.ledger, self.old_app = self.fresh(), None
        self.checkpoints = [snapshot(self.ledger.state)]
        self.registry = {}
        self.nodes = [[self.disk()] for _ in range(N)]
        self.spare, self.backups = [[] for _ in range(N)], [[] for _ in range(N)]
        self.orders, self.replies = [], []

    def disk(self):
        return MemoryDisk(self.registry)

    def fresh(self):
        return Ledger(self.algorithm, self.task.init(0), N, self.options, self.rules)

    def save(self):
        self.checkpoints.append(snapshot(self.ledger.state))

    def restart(self, state):
        """A new server app polls only for replies to its own messages. Old orders may still arrive."""
        self.ledger = self.fresh()
        self.ledger.restore(snapshot(state))
        self.replies = [(app, reply) for app, reply in self.replies if app is self.old_app]

    def change_settings(self, local_steps, seed):
        """The server app is restarted with other settings, while the old one goes on."""
        self.old_app = self.ledger
        self.options = replace(self.options, local_steps=local_steps, seed=seed)
        self.restart(self.checkpoints[-1])

    def work(self, order, node=0, fault=None):
        """The reply of one of the client's nodes, or None if its process fails."""
        client = order.step_id.client
        disk = self.nodes[client][node % len(self.nodes[client])]
        disk.fault = fault
        try:
            return answer(order, self.algorithm, self.task, disk)
        except (Killed, OSError):
            return None
        finally:
            disk.fault = None

    def all_arrive(self, node=0):
        """Every client is asked and replies; a client that is ahead of the server is asked again."""
        asked = [i for i in range(N) if self.ledger.eligible(i)]
        for i in asked:
            self.ledger.receive(self.work(self.ledger.order(i), node))
        for i in self.ledger.take_outdated():
            self.ledger.receive(self.work(self.ledger.order(i), node))

    def close(self, *, killed=False):
        """The deadline of a round, and the checkpoint; the server may be killed between the two."""
        self.ledger.close_round()
        if killed:
            self.restart(self.checkpoints[-1])
        else:
            self.save()
        self.check()

    def gap(self, states):
        """||y - sum h|| / ||y|| with these client states."""
        server = self.ledger.state.server
        y, name = (server["c"] * N, "c") if "c" in server else (server["y"], "h")
        total = sum((state[name] for state in states), torch.zeros(D, dtype=torch.float64))
        return float((y - total).norm() / y.norm().clamp(min=1e-3))

    def check(self):
        """At any time, y is the sum of the states that the server's record names, wherever they are."""
        state = self.ledger.state
        if self.on_loss == "table":
            assert self.ledger.drift() <= 1e-9, f"drift {self.ledger.drift()}"
            for i, last in state.last.items():
                (total,), (h, *_) = state.table[i].values(), self.registry[last.version].values()
                assert float((total - h).norm()) <= 1e-9, f"client {i}'s entry in the table"
        else:
            gap = self.gap([self.registry[last.version] for last in state.last.values()])
            assert gap <= 1e-9, f"gap {gap}"

    def settle(self):
        """No more faults: everyone's reply is merged, and the gap is measured with what is on the disks."""
        self.old_app, self.replies = None, []
        for disks in self.nodes:
            del disks[1:]
        attempts, complete = 0, 0
        while complete < 2:
            assert attempts < SETTLING, "the federation does not recover"
            self.all_arrive()
            outcome = self.ledger.close_round()
            staying = N - len(self.ledger.state.evicted)
            complete = complete + 1 if len(outcome.merged) == staying else 0
            attempts += 1
        versions = [self.nodes[i][0].read().find(last.version) for i, last in self.ledger.state.last.items()]
        assert all(versions), "a client does not have the state that the server names"
        self.check()
        return self.gap([version.state for version in versions])
