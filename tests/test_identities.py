"""Identities between algorithms beyond the contract, and known mistakes in SCAFFOLD implementations."""

import itertools
from dataclasses import dataclass

import literal
import numpy as np
import pytest
import torch
from problems import RATES, K, N, noisy, schedules

from fedsum import (
    MIFA,
    SCAFFOLD,
    Explicit,
    FedAU,
    FedAvg,
    FedSUM,
    FedSUMB,
    FedSUMCR,
    FedVARP,
    InputError,
    LocalPlan,
    Round,
    Uniform,
    simulate,
)
from fedsum.experiments.between import Between


def final(algorithm, schedule, *, rounds=40, eta_l=RATES["decaying"], local_steps=K, **options):
    options = {"eta_g": 0.8, "seed": 2, "dtype": torch.float64} | options
    return simulate(noisy(), algorithm, schedule, rounds=rounds, local_steps=local_steps, eta_l=eta_l, **options).x


@pytest.mark.parametrize("pattern", schedules())
def test_fedsum_with_mifas_local_work_is_mifa(pattern):
    class Uncorrected(FedSUM):
        def plan(self, client, down, now):
            return LocalPlan(start=down["x"], step=now.eta_l)

    schedule = schedules()[pattern]
    assert (final(Uncorrected(), schedule) - final(MIFA(), schedule)).abs().max() < 1e-12
    assert (final(FedSUM(), schedule) - final(MIFA(), schedule)).abs().max() > 1e-6


@pytest.mark.parametrize("algorithm", [MIFA, FedVARP])
def test_a_memory_of_displacements_differs_only_if_the_rate_changes(algorithm):
    schedule = schedules()["biased"]
    gradients, displacements = algorithm(), algorithm(displacements=True)
    constant = final(gradients, schedule, eta_l=0.05) - final(displacements, schedule, eta_l=0.05)
    assert constant.abs().max() < 1e-12
    assert (final(gradients, schedule) - final(displacements, schedule)).abs().max() > 1e-6


@pytest.mark.parametrize("pattern", schedules())
def test_between_has_scaffold_at_one_end_and_fedsum_at_the_other(pattern):
    schedule, names = schedules()[pattern], ("FedSUM", "SCAFFOLD")
    found = {(steps, server): final(Between(steps, server), schedule) for steps in names for server in names}
    assert (found["FedSUM", "FedSUM"] - final(FedSUM(), schedule)).abs().max() < 1e-12
    assert (found["SCAFFOLD", "SCAFFOLD"] - final(SCAFFOLD(), schedule)).abs().max() < 1e-12
    for one, other in itertools.combinations(found.values(), 2):
        assert (one - other).abs().max() > 1e-6


def test_between_what():
    with pytest.raises(InputError, match="server = 'FedAvg': 'FedSUM' or 'SCAFFOLD'"):
        Between("FedSUM", "FedAvg")


@pytest.mark.parametrize("pattern", schedules())
def test_fedau_with_cutoff_one_divides_by_n(pattern):
    class DividedByN(FedAvg):
        def merge(self, server, total, m, now):
            return {"x": server["x"] - now.stride / now.N * total["G"]}

    schedule = schedules()[pattern]
    assert (final(FedAU(cutoff=1), schedule) - final(DividedByN(), schedule)).abs().max() < 1e-12


def test_one_step_with_everyone_makes_the_family_one():
    everyone = Uniform(N, N)
    reference = final(FedAvg(), everyone, local_steps=1)
    for algorithm in (FedSUM(), FedSUMB(), FedSUMCR(), SCAFFOLD()):
        assert (final(algorithm, everyone, local_steps=1) - reference).abs().max() < 1e-12
    # With more steps they differ; otherwise the identity above would be trivial.
    assert (final(FedSUM(), everyone) - final(FedAvg(), everyone)).abs().max() > 1e-6


def test_constant_rates_make_cr_and_its_printed_form_one():
    for schedule in schedules().values():
        for algorithm, same in ((RATES["constant"], True), (RATES["decaying"], False)):
            exact = final(FedSUMCR(), schedule, eta_l=algorithm)
            printed = final(FedSUMCR(printed_average=True), schedule, eta_l=algorithm)
            assert bool((exact - printed).abs().max() < 1e-12) == same


def test_cr_gap_is_subtracted_in_double_precision():
    """In float32 the running sum E swamps a one-round gap: the average would be off by up to 2e-4."""
    rounds = 4000
    sets = [[0]] * rounds
    task = noisy(1, noise=0.0)
    history = simulate(
        task, FedSUMCR(), Explicit(1, sets), rounds=rounds, local_steps=2, eta_l=0.1, eta_g=0.7, eval_every=rounds
    )
    gap = history.server["E"] - history.clients[0]["E"]
    assert abs(float(gap) / (0.7 * 0.1 * 2) - 1) < 1e-9
    # The numbers in plan(): E is about 560, the gap 0.14, and z - x has the length of one gap, in float32.
    now = Round(t=rounds, N=1, K=2, eta_l=0.1, eta_g=0.7)
    client = history.clients[0] | {"h": torch.zeros(4), "z": torch.full((4,), 0.14)}
    plan = FedSUMCR().plan(client, {"x": torch.zeros(4), "E": history.server["E"]}, now)
    assert (plan.correction - 1).abs().max() < 1e-6


@dataclass(frozen=True)
class DividesByM(SCAFFOLD):
    def merge(self, server, total, m, now):
        merged = super().merge(server, total, m, now)
        return merged | ({"c": server["c"] + total["d"] / m} if m else {})


@dataclass(frozen=True)
class StartsWithTheModel(SCAFFOLD):
    def init_client(self, x0):
        return {"c": x0}


@dataclass(frozen=True)
class OverwritesFirst(SCAFFOLD):
    def report(self, client, down, plan, G, now):
        return {"d": G - G}, {"c": G}


@dataclass(frozen=True)
class ForgetsClients(SCAFFOLD):
    def report(self, client, down, plan, G, now):
        uplink, _ = super().report(client, down, plan, G, now)
        return uplink, client


@dataclass(frozen=True)
class StaleRate(SCAFFOLD):
    def plan(self, client, down, now):
        plan = super().plan(client, down, now)
        return LocalPlan(plan.start, RATES["decaying"](0), plan.correction)


@dataclass(frozen=True)
class Decays(SCAFFOLD):
    def plan(self, client, down, now):
        plan = super().plan(client, down, now)
        return LocalPlan(plan.start, plan.step, plan.correction + 0.1 * plan.start)


@pytest.mark.parametrize(
    "mistaken", [DividesByM, StartsWithTheModel, OverwritesFirst, ForgetsClients, StaleRate, Decays]
)
def test_known_mistakes_in_public_scaffold_code_would_be_seen(mistaken):
    schedule = schedules()["independent"]
    sets = [schedule.active(2, t).tolist() for t in range(40)]
    original = literal.scaffold(literal.Problem(noisy(), sets, K, RATES["decaying"], 0.8, seed=2))
    assert np.abs(final(SCAFFOLD(), schedule).numpy() - original).max() < 1e-9
    assert np.abs(final(mistaken(), schedule).numpy() - original).max() > 1e-6


# The option `divide_by_seen`.

SEEN = [FedSUM, FedSUMB, FedSUMCR, MIFA]


@pytest.mark.parametrize("kind", SEEN)
def test_with_everyone_seen_dividing_by_the_seen_is_the_papers_algorithm(kind):
    """Function by function, bit for bit: plan and merge from the same states."""
    x, h, y, G = torch.randn(4, 3, dtype=torch.float64)
    paper, option = kind(), kind(divide_by_seen=True)

    def steps(algorithm, seen):
        now = Round(t=5, N=7, K=3, eta_l=0.1, eta_g=0.8, seen=seen)
        server = algorithm.init_server(x, now) | {"sum" if kind is MIFA else "y": y}
        client = algorithm.init_client(x + 1) | ({} if kind is MIFA else {"h": h})
        down = algorithm.downlink(server, now)
        plan = algorithm.plan(client, down, now)
        uplink, _ = algorithm.report(client, down, plan, G, now)
        contribution, _ = algorithm.digest(algorithm.init_row(x), uplink, now)
        merged = algorithm.merge(server, contribution, 1, now)
        return [plan.correction, torch.tensor(plan.step), *merged.values()]

    for ours, theirs in zip(steps(option, 7), steps(paper, 7), strict=True):
        assert (ours is theirs is None) or torch.equal(ours, theirs)
    assert not torch.equal(steps(option, 3)[2], steps(paper, 3)[2])  # the x of a server that saw 3 of 7


@pytest.mark.parametrize("kind", [FedSUM, FedSUMCR, MIFA])
def test_dividing_by_the_seen_makes_the_first_round_fedavgs(kind):
    first = Explicit(N, [[], [1, 4, 5]])
    ours = final(kind(divide_by_seen=True), first, rounds=2)
    assert (ours - final(FedAvg(), first, rounds=2)).abs().max() < 1e-12
    assert (final(kind(), first, rounds=2) - ours).abs().max() > 1e-3


def test_resumed_runs_have_counted_the_clients_seen(tmp_path):
    options = {"eta_l": 0.05, "local_steps": 2, "dtype": torch.float64, "seed": 2}
    algorithm, schedule = FedSUM(divide_by_seen=True), schedules()["biased"]
    whole = simulate(noisy(), algorithm, schedule, rounds=9, **options)
    simulate(noisy(), algorithm, schedule, rounds=4, folder=tmp_path / "run", **options)
    longer = simulate(noisy(), algorithm, schedule, rounds=9, folder=tmp_path / "run", extend=True, **options)
    assert torch.equal(whole.x, longer.x)
