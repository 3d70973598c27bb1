"""One contract for every algorithm. Adding an algorithm is adding one row to ROWS."""

from collections.abc import Callable
from dataclasses import dataclass, fields

import literal
import literal_next
import numpy as np
import pytest
import torch
from problems import RATES, D, K, N, noisy, schedules
from wire import over_the_wire

import fedsum
from fedsum import (
    FOCUS,
    MIFA,
    SCAFFOLD,
    SCAFFOLDM,
    Adam,
    AmplifiedFedAvg,
    AmplifiedSCAFFOLD,
    Compressed,
    Explicit,
    FedAdagrad,
    FedAdam,
    FedAsync,
    FedAU,
    FedAvg,
    FedAvgM,
    FedAWE,
    FedBuff,
    FedCM,
    FedDyn,
    FedExP,
    FedProx,
    FedStale,
    FedSUM,
    FedSUMB,
    FedSUMCR,
    FedVARP,
    FedYogi,
    Int8,
    KnownFedAvg,
    RandomK,
    ServerOpt,
    TopK,
    Uniform,
    simulate,
)
from fedsum.algorithms import ALGORITHMS, Algorithm, card

ROUNDS = 40
PROBABILITIES = np.linspace(0.2, 0.9, N).tolist()


def total(states, name):
    return sum((state[name] for state in states.values()), torch.zeros(D, dtype=torch.float64))


@dataclass
class Row:
    algorithm: Algorithm
    literal: Callable
    """the same algorithm in tests/literal.py or tests/literal_next.py"""
    vectors: tuple[int, int]
    """model-sized vectors down and up"""
    empty: str
    """what an empty round does: 'steps' moves x, 'rests' does not"""
    summable: bool = True
    fedavg_if_full: str = "K=1"
    """when it equals FedAvg with all clients active: for 'any K', for 'K=1' only, or 'no'"""
    invariant: Callable | None = None
    """from the History, an expression that must be zero after every round"""
    scalars: int = 0
    """scalars down and up"""
    eta_g: float = 0.8
    up_bytes: int | None = None
    """bytes up if they are not those of the vectors and scalars"""
    clients: int | None = None
    """the number of clients that its options are for; None: any"""

    @property
    def id(self):
        return repr(self.algorithm)


ROWS = [
    Row(FedSUMB(), literal.fedsum_b, (1, 1), "steps", invariant=lambda h: h.server["y"] - total(h.clients, "h")),
    Row(FedSUM(), literal.fedsum, (2, 1), "steps", invariant=lambda h: h.server["y"] - total(h.clients, "h")),
    Row(
        FedSUMCR(),
        literal.fedsum_cr,
        (1, 1),
        "steps",
        invariant=lambda h: h.server["y"] - total(h.clients, "h"),
        scalars=1,
    ),
    Row(
        FedSUMCR(printed_average=True),
        literal.fedsum_cr_printed,
        (1, 1),
        "steps",
        invariant=lambda h: h.server["y"] - total(h.clients, "h"),
    ),
    *(
        Row(
            algorithm,
            twin,
            (down, 1),
            "steps",
            invariant=lambda h: h.server["y"] - total(h.clients, "h"),
            scalars=scalars,
        )
        for algorithm, twin, down, scalars in (
            (FedSUMB(divide_by_seen=True), literal_next.fedsum_b_seen, 1, 0),
            (FedSUM(divide_by_seen=True), literal_next.fedsum_seen, 2, 0),
            (FedSUMCR(divide_by_seen=True), literal_next.fedsum_cr_seen, 1, 1),
        )
    ),
    Row(FedAvg(), literal.fedavg, (1, 1), "rests", fedavg_if_full="any K"),
    Row(
        SCAFFOLD(),
        literal.scaffold,
        (2, 1),
        "rests",
        invariant=lambda h: h.server["c"] - total(h.clients, "c") / N,
    ),
    Row(
        MIFA(),
        literal.mifa,
        (1, 1),
        "steps",
        summable=False,
        fedavg_if_full="any K",
        invariant=lambda h: h.server["sum"] - total(h.memory, "G"),
    ),
    Row(
        MIFA(divide_by_seen=True),
        literal_next.mifa_seen,
        (1, 1),
        "steps",
        summable=False,
        fedavg_if_full="any K",
        invariant=lambda h: h.server["sum"] - total(h.memory, "G"),
    ),
    Row(
        MIFA(displacements=True),
        literal.mifa_displacements,
        (1, 1),
        "steps",
        summable=False,
        fedavg_if_full="any K",
        invariant=lambda h: h.server["sum"] - total(h.memory, "G"),
    ),
    Row(
        FedVARP(),
        literal.fedvarp,
        (1, 1),
        "rests",
        summable=False,
        fedavg_if_full="any K",
        invariant=lambda h: h.server["ybar"] - total(h.memory, "y") / N,
    ),
    Row(
        FedVARP(displacements=True),
        literal.fedvarp_displacements,
        (1, 1),
        "rests",
        summable=False,
        fedavg_if_full="any K",
        invariant=lambda h: h.server["ybar"] - total(h.memory, "y") / N,
    ),
    Row(FedAU(), literal.fedau, (1, 1), "rests", summable=False, fedavg_if_full="any K"),
    Row(FedAU(cutoff=3), literal.fedau_cutoff_3, (1, 1), "rests", summable=False, fedavg_if_full="any K"),
    Row(FedAWE(), literal.fedawe, (1, 1), "rests", fedavg_if_full="any K"),
    Row(FedAWE(clip=0.1), literal.fedawe_clipped, (1, 2), "rests", fedavg_if_full="no"),
    Row(FedAvgM(beta=0.7), literal_next.fedavgm, (1, 1), "rests", fedavg_if_full="no"),
    Row(FedAdagrad(), literal_next.fedadagrad, (1, 1), "rests", fedavg_if_full="no"),
    Row(FedYogi(tau=1e-2), literal_next.fedyogi, (1, 1), "rests", fedavg_if_full="no"),
    Row(FedAdam(beta1=0.8, beta2=0.95, tau=1e-2), literal_next.fedadam, (1, 1), "rests", fedavg_if_full="no"),
    Row(FedExP(), literal_next.fedexp, (1, 1), "rests", fedavg_if_full="no", scalars=1, eta_g=1.0),
    Row(FedCM(alpha=0.3), literal_next.fedcm, (2, 1), "rests", fedavg_if_full="no"),
    Row(
        SCAFFOLDM(beta=0.3),
        literal_next.scaffold_m,
        (2, 1),
        "rests",
        fedavg_if_full="no",
        invariant=lambda h: h.server["c"] - total(h.clients, "c") / N,
    ),
    Row(AmplifiedFedAvg(period=3), literal_next.amplified_fedavg, (1, 1), "rests", fedavg_if_full="no"),
    Row(
        AmplifiedSCAFFOLD(period=3),
        literal_next.amplified_scaffold,
        (2, 2),
        "rests",
        fedavg_if_full="no",
        invariant=lambda h: h.server["c"] + h.server["pending"] / N - total(h.clients, "a") / N,
    ),
    Row(
        FedStale(beta=0.4, cutoff=4),
        literal_next.fedstale,
        (1, 1),
        "steps",
        summable=False,
        fedavg_if_full="any K",
        invariant=lambda h: h.server["hbar"] - total(h.memory, "h") / N,
    ),
    Row(FOCUS(), literal_next.focus, (1, 1), "steps", invariant=lambda h: h.server["y"] - total(h.clients, "h")),
    Row(FedProx(mu=0.7), literal_next.fedprox, (1, 1), "rests"),
    Row(
        FedDyn(alpha=0.6),
        literal_next.feddyn,
        (1, 1),
        "rests",
        fedavg_if_full="no",
        invariant=lambda h: h.server["h"] - total(h.clients, "lambda") / N,
        eta_g=1.0,
    ),
    Row(KnownFedAvg(p=0.4), literal_next.known_fedavg, (1, 1), "rests", fedavg_if_full="no"),
    Row(
        KnownFedAvg(p=PROBABILITIES),
        lambda P: literal_next.known_fedavg(P, PROBABILITIES),
        (1, 1),
        "rests",
        summable=False,
        fedavg_if_full="no",
        clients=N,
    ),
    Row(FedBuff(), literal_next.fedbuff, (1, 1), "rests", fedavg_if_full="any K", scalars=1),
    Row(FedAsync(), literal_next.fedasync, (1, 1), "rests", fedavg_if_full="no", scalars=2, eta_g=1.0),
    Row(
        ServerOpt(FedSUM(), Adam(0.05)),
        literal_next.fedsum_adam,
        (2, 1),
        "steps",
        fedavg_if_full="no",
        invariant=lambda h: h.server["y"] - total(h.clients, "h"),
    ),
    *(
        Row(
            Compressed(FedSUM(), compressor),
            lambda P, C=twin: literal_next.compressed_fedsum(P, C),
            (2, 1),
            "steps",
            fedavg_if_full="no",
            invariant=lambda h: h.server["y"] - total(h.clients, "h"),
            up_bytes=up_bytes,
        )
        for compressor, twin, up_bytes in (
            (TopK(0.5), literal_next.top_half, 2 * 8 + 2 * 4),
            (RandomK(0.5), literal_next.random_half, 2 * 8 + 8),
            (Int8(), literal_next.eight_bits, D + 8),
        )
    ),
    *(
        Row(
            Compressed(SCAFFOLD(), TopK(0.5), **options),
            lambda P, options=options: literal_next.compressed_scaffold(P, literal_next.top_half, **options),
            (2, 1),
            "rests",
            fedavg_if_full="no",
            invariant=lambda h: h.server["c"] - total(h.clients, "c") / N,
            up_bytes=2 * 8 + 2 * 4,
        )
        for options in ({"alpha": 0.4}, {"beta": 0.3})  # SCALLION, SCAFCOM
    ),
]


def run(row, schedule, rounds=ROUNDS, *, task=None, eta_l=0.05, local_steps=K, **options):
    algorithm = row.algorithm if isinstance(row, Row) else row
    options = {"eta_g": getattr(row, "eta_g", 0.8), "seed": 2, "dtype": torch.float64, "eval_every": rounds} | options
    return simulate(
        task or noisy(), algorithm, schedule, rounds=rounds, local_steps=local_steps, eta_l=eta_l, **options
    )


def test_every_algorithm_has_a_row():
    assert {type(row.algorithm) for row in ROWS} == set(ALGORITHMS.values())


contract = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
every_schedule = pytest.mark.parametrize("pattern", schedules())
every_rate = pytest.mark.parametrize("rate", RATES)


@contract
@every_schedule
@every_rate
def test_equals_its_literal_transcription(row, pattern, rate):
    schedule = schedules()[pattern]
    ours = run(row, schedule, eta_l=RATES[rate])
    sets = [schedule.active(2, t).tolist() for t in range(ROUNDS)]
    theirs = row.literal(literal.Problem(noisy(), sets, K, RATES[rate], row.eta_g, seed=2))
    assert np.abs(ours.x.numpy() - theirs).max() < 1e-9
    assert np.abs(theirs - noisy().init(2).numpy()).max() > 1e-2  # something was learned


@contract
@every_schedule
def test_two_worlds_one_definition(row, pattern):
    """Stacked in the simulator, and one client at a time over a network that carries bytes."""
    schedule = schedules()[pattern]
    ours = run(row, schedule, eta_l=RATES["decaying"])
    server, clients, memory, tau = over_the_wire(
        noisy(), row.algorithm, schedule, rounds=ROUNDS, K=K, eta_l=RATES["decaying"], eta_g=row.eta_g, seed=2
    )
    assert ours.server.keys() == server.keys()
    for name, value in server.items():
        assert torch.allclose(ours.server[name], value, rtol=1e-12, atol=1e-12), name
    assert list(ours.clients) == sorted(clients)
    for i, state in clients.items():
        for name, value in state.items():
            assert torch.allclose(ours.clients[i][name], value, rtol=1e-12, atol=1e-12), (i, name)
    assert list(ours.memory) == sorted(memory)
    for i, remembered in memory.items():
        for name, value in remembered.items():
            assert torch.allclose(ours.memory[i][name], value, rtol=1e-12, atol=1e-12), (i, name)
    assert ours.delays.tau.tolist() == tau


@contract
@every_schedule
def test_invariant_holds_after_every_round(row, pattern):
    if row.invariant is None:
        return
    for rounds in range(1, 12):
        history = run(row, schedules()[pattern], rounds, eta_l=RATES["decaying"])
        assert row.invariant(history).abs().max() < 1e-12


@contract
def test_full_participation_is_fedavg(row):
    everyone = Uniform(N, N)
    for steps in {"any K": (1, 3), "K=1": (1,), "no": ()}[row.fedavg_if_full]:
        ours = run(row, everyone, local_steps=steps, eta_l=RATES["decaying"])
        fedavg = run(FedAvg(), everyone, local_steps=steps, eta_l=RATES["decaying"])
        assert (ours.x - fedavg.x).abs().max() < 1e-12


@contract
def test_empty_round(row):
    one = run(row, Explicit(N, [[0, 3]]), 1)
    two = run(row, Explicit(N, [[0, 3], []]), 2)
    moved = (one.x - two.x).abs().max() > 0
    assert bool(moved) == (row.empty == "steps")
    assert two.rows[-1]["communication"] == one.rows[-1]["communication"]


@contract
def test_rounds_that_are_all_empty_change_nothing(row):
    history = run(row, Explicit(N, [[]] * 5), 5)
    assert torch.equal(history.x, noisy().init(0))
    assert len(history.clients) == len(history.memory) == 0


@contract
def test_messages_are_counted(row):
    sets = [[0], [], [1, 2, 3], [0, 1]]
    history = run(row, Explicit(N, sets), len(sets))
    down, up = row.vectors
    replies = sum(map(len, sets))
    last = history.rows[-1]
    assert last["communication"] == (down + up) * replies
    up_bytes = up * D * 8 if row.up_bytes is None else row.up_bytes
    assert last["bytes"] == ((down * D + row.scalars) * 8 + up_bytes) * replies


@contract
def test_card_says_what_is_sent_and_kept(row):
    found = card(row.algorithm)
    assert (found.vectors_down, found.vectors_up) == row.vectors
    assert found.summable == row.summable == (not found.server_memory)


@contract
def test_summable_uplinks_may_be_summed_on_their_way(row, monkeypatch):
    """A relay that sums uplinks changes nothing, for exactly the algorithms that declare their uplinks summable."""
    # `digest` of a relay sees a whole cohort, which fedsum.check refuses.
    monkeypatch.setattr("fedsum.training.training_loop.check_once", lambda algorithm, x0: None)

    class Relayed(type(row.algorithm)):
        def digest(self, row, uplink, now):
            m = len(next(iter(uplink.values())))
            if m == 0:
                return super().digest(row, uplink, now)
            one = {name: v[:1] for name, v in row.items()}
            summed = {name: v.sum(0, keepdim=True) for name, v in uplink.items()}
            contribution, _ = super().digest(one, summed, now)
            return contribution, row

    direct = run(row, schedules()["independent"])
    options = {field.name: getattr(row.algorithm, field.name) for field in fields(row.algorithm)}
    relayed = run(Relayed(**options), schedules()["independent"], eta_g=row.eta_g)
    assert bool((direct.x - relayed.x).abs().max() < 1e-12) == row.summable


@contract
def test_functions_leave_their_arguments_alone(row):
    """All functions are pure: none writes into its state or message arguments."""
    algorithm, x0 = row.algorithm, torch.randn(D, dtype=torch.float64)
    now = fedsum.Round(t=4, N=N, K=K, eta_l=0.1, eta_g=row.eta_g)

    def stack(state):
        return {name: v.expand(2, *v.shape).clone() for name, v in state.items()}

    server = {name: v.clone() for name, v in algorithm.init_server(x0, now).items()}
    client, memory = stack(algorithm.init_client(x0)), stack(algorithm.init_row(x0))
    given = [server, client, memory]
    before = [{name: v.clone() for name, v in state.items()} for state in given]
    down = algorithm.downlink(server, now)
    plan = algorithm.plan(client, down, now)
    uplink, _ = algorithm.report(client, down, plan, torch.randn(2, D, dtype=torch.float64), now)
    contribution, _ = algorithm.digest(memory, algorithm.unpack(uplink, x0), now)
    merged = algorithm.merge(server, {name: v.sum(0) for name, v in contribution.items()}, 2, now)
    algorithm.receive(client, algorithm.farewell(merged, now), now)
    for state, copy in zip(given, before, strict=True):
        assert state.keys() == copy.keys()
        assert all(torch.equal(state[name], copy[name]) for name in state)


@contract
def test_float32_stays_float32_and_agrees(row):
    exact = run(row, schedules()["independent"])
    single = run(row, schedules()["independent"], dtype=torch.float32)
    assert single.x.dtype == torch.float32
    assert all(v.dtype != torch.float64 for n, v in single.server.items() if n != "E")
    assert (exact.x - single.x).abs().max() < 1e-4


@contract
def test_cost_follows_participation(row):
    """Of ten thousand clients three are ever active: three states are stored."""
    if row.clients is not None:
        return
    n = 10_000
    task = fedsum.tasks.Quadratic(np.ones((n, 2)), np.random.default_rng(0).normal(size=(n, 2)))
    history = run(row, Explicit(n, [[3, 9_999], [], [500, 9_999]]), 3, task=task)
    assert list(history.clients) == list(history.memory) == [3, 500, 9_999]
    assert history.x.isfinite().all()
