"""fedsum.check: every mistake is found, with the function that makes it; fedsum's own algorithms have none."""

from dataclasses import dataclass

import pytest
import torch
from test_contract import ROWS

import fedsum
from fedsum import FedAvg, FedSUM, InputError, LocalPlan


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_fedsums_own_algorithms_pass(row):
    fedsum.check(row.algorithm)
    fedsum.check(row.algorithm, torch.randn(9))


class Clipped(FedAvg):
    """Clips per client, as it should."""

    def report(self, client, down, plan, G, now):
        return {"G": G / G.norm(dim=-1, keepdim=True).clamp(min=0.5)}, client


class CohortNorm(FedAvg):
    def report(self, client, down, plan, G, now):
        return {"G": G / G.norm().clamp(min=0.5)}, client


class CohortMean(FedSUM):
    def plan(self, client, down, now):
        h = client["h"] if client["h"].dim() == 1 else client["h"] - client["h"].mean(0)
        return LocalPlan(down["x"], now.eta_l, correction=h)


class TensorStep(FedAvg):
    def plan(self, client, down, now):
        return LocalPlan(down["x"], torch.tensor(0.1))


class RankedMemory(fedsum.MIFA):
    def digest(self, row, uplink, now):
        contribution, memory = super().digest(row, uplink, now)
        return contribution, {"G": memory["G"].sort(0).values}


class InPlace(FedAvg):
    def report(self, client, down, plan, G, now):
        return {"G": G.mul_(2)}, client


class Counting(FedAvg):
    rounds = 0

    def downlink(self, server, now):
        self.__dict__["rounds"] += 1
        return {"x": server["x"] * self.rounds}

    def __init__(self):
        self.__dict__["rounds"] = 0


class Empty(FedAvg):
    def merge(self, server, total, m, now):
        return {"x": server["x"] - now.stride * total["G"] / m}


class Forgets(FedAvg):
    def merge(self, server, total, m, now):
        return {"x": server["x"], "momentum": total["G"]}


class NoMomentum(FedAvg):
    def merge(self, server, total, m, now):
        return {"x": server["x"], "v": server["v"] + total["G"]}


class Doubles(FedAvg):
    def merge(self, server, total, m, now):
        return {"x": server["x"].double() + total["G"] * 0}


class Scalar(FedAvg):
    def report(self, client, down, plan, G, now):
        return {"G": G, "weight": torch.tensor(1.0)}, client


class OneClient(FedAvg):
    def report(self, client, down, plan, G, now):
        assert G.dim() == 2, "a cohort"
        return {"G": G}, client


class Greeting(FedAvg):
    def init_client(self, x0):
        return {"norm": x0.norm()}

    def report(self, client, down, plan, G, now):
        return {"G": G}, client

    def farewell(self, server, now):
        return {"x": server["x"]}

    def receive(self, client, message, now):
        return {"norm": message["x"].norm()}


class NoState(FedAvg):
    def report(self, client, down, plan, G, now):
        return {"G": G}


MISTAKES = {
    CohortNorm: "CohortNorm.report = \"message 'G' differs by .*the same for one client as in a cohort of 3.*dim=-1",
    CohortMean: "CohortMean.plan = 'correction differs by",
    TensorStep: "TensorStep.plan = 'step Tensor': a number",
    RankedMemory: "RankedMemory.digest = \"state 'G' differs",
    InPlace: "InPlace.report = 'an argument changed in place'",
    Counting: "Counting.downlink = 'two results for the same arguments'",
    Empty: "Empty.merge = 'x is not finite': finite numbers for m = 0|Empty.merge = 'ZeroDivisionError",
    Forgets: r"Forgets.merge = \['momentum', 'x'\]: a state with the names of the initial state, \['x'\]",
    Doubles: r"Doubles.merge = 'x \[7\] torch.float64': shape and dtype of the initial state, \[7\] torch.float32",
    Scalar: r"Scalar.report = \"message 'weight' of shape \[\]\": \[3\] for 3 clients",
    OneClient: "OneClient.report = 'AssertionError: a cohort.*: must not raise an error; it was called with x",
    NoMomentum: "NoMomentum.merge = .*KeyError: 'v'.*called with x .*; init_server and init_client name the states",
    Greeting: r"Greeting.receive = .*norm of shape \[\]",
    NoState: "NoState.report = 'dict': a pair",
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_found_and_its_function_named(mistake):
    with pytest.raises(InputError, match=MISTAKES[mistake]) as caught:
        fedsum.check(mistake())
    assert "\n" not in str(caught.value)


class Noisy(FedAvg):
    """Privacy noise, drawn with torch: correct, though a cohort draws other numbers than its clients."""

    def report(self, client, down, plan, G, now):
        return {"G": G + torch.randn_like(G)}, client


def test_correct_algorithms_pass():
    fedsum.check(Clipped())
    fedsum.check(Noisy())
    with pytest.raises(InputError, match="an object of a class derived from"):
        fedsum.check(FedSUM)


def test_simulate_checks_an_unknown_class_once(monkeypatch):
    task = fedsum.tasks.Quadratic.random(6, 4)
    options = {"rounds": 2, "local_steps": 1, "eta_l": 0.1}

    @dataclass(frozen=True)
    class Own(FedAvg):
        calls = []
        scale: float = 1.0

        def downlink(self, server, now):
            self.calls.append(now.t)
            return super().downlink(server, now)

    fedsum.simulate(task, Own(), fedsum.Uniform(6, 2), **options)
    assert len(Own.calls) > 2
    Own.calls.clear()
    fedsum.simulate(task, Own(scale=2.0), fedsum.Uniform(6, 2), **options)
    assert Own.calls == [0, 1]
    with pytest.raises(InputError, match=r"CohortNorm\.report"):
        fedsum.simulate(task, CohortNorm(), fedsum.Uniform(6, 2), **options)
    with pytest.raises(InputError, match=r"CohortNorm\.report"):  # refused again, not taken as checked
        fedsum.simulate(task, CohortNorm(), fedsum.Uniform(6, 2), **options)


def test_the_check_draws_no_numbers_of_the_caller():
    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(5)
    fedsum.check(Noisy())
    assert torch.equal(torch.randn(3), expected)
