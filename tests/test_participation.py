"""Schedules: pure, sorted, in range, with the documented distribution."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsum import (
    Biased,
    Cyclic,
    Explicit,
    Independent,
    InputError,
    Markov,
    Periodic,
    Reshuffled,
    Sine,
    Uniform,
    delays,
    theory,
)
from fedsum.base.registry import build
from fedsum.participation import SCHEDULES
from fedsum.participation.independent import Coins

probabilities = st.floats(0.01, 1.0)


@st.composite
def any_schedule(draw):
    n = draw(st.integers(1, 40))
    size = draw(st.integers(1, n))
    p = draw(probabilities)
    vector = draw(st.lists(probabilities, min_size=n, max_size=n))
    chain = st.floats(0.0, 0.99)
    sets = st.lists(st.sets(st.integers(0, n - 1)), min_size=1, max_size=8)
    return draw(
        st.sampled_from(
            [
                Uniform(n, size),
                Independent(n, p),
                Independent(n, vector),
                Independent(n, lambda t: p / (t + 1)),
                Independent(n, lambda t: np.array(vector) / (t + 1)),
                Sine(n, size),
                Cyclic(n, size),
                Reshuffled(n, size),
                Biased(n, group=draw(st.integers(1, 5))),
                Markov(n, on=draw(chain), off=draw(chain)),
                Explicit(n, draw(sets), repeat=True),
                Periodic(n, groups=draw(st.integers(1, n // size)), dwell=draw(st.integers(1, 5)), size=size),
            ]
        )
    )


@given(any_schedule(), st.integers(0, 2**32), st.lists(st.integers(0, 300), min_size=1, max_size=5))
def test_active_is_a_pure_function_of_seed_and_round(schedule, seed, rounds):
    first = {t: schedule.active(seed, t) for t in rounds}
    for ids in first.values():
        assert ids.dtype == np.int64
        assert (np.diff(ids) > 0).all()
        assert ((ids >= 0) & (ids < schedule.n)).all()
    for t in reversed(rounds):  # again, in another order, after the caller wrote into the results
        again = schedule.active(seed, t)
        assert np.array_equal(again, first[t])
        again[:] = -1
        assert np.array_equal(schedule.active(seed, t), first[t])


@given(st.integers(1, 30), st.data(), st.integers(0, 5))
def test_chosen_patterns_choose_s_and_reach_everyone(n, data, seed):
    size = data.draw(st.integers(1, n))
    turn = math.ceil(n / size)
    for schedule in (Uniform(n, size), Cyclic(n, size), Reshuffled(n, size)):
        assert all(len(schedule.active(seed, t)) == size for t in range(5))
    for schedule in (Cyclic(n, size), Reshuffled(n, size)):
        for epoch in range(3):
            seen = [schedule.active(seed, epoch * turn + b) for b in range(turn)]
            assert len(np.unique(np.concatenate(seen))) == n


def test_groups_take_turns_of_dwell_rounds():
    schedule = Periodic(11, groups=3, dwell=4, size=2)
    assert schedule.period == 12
    members = [set(range(3)), set(range(3, 7)), set(range(7, 11))]  # 3 groups of 11 clients
    for t in range(30):
        active = schedule.active(0, t)
        assert len(active) == 2
        assert set(active.tolist()) <= members[t // 4 % 3]
    assert {i for t in range(200) for i in schedule.active(0, t).tolist()} == set(range(11))
    with pytest.raises(InputError, match=r"size = 4: a whole number from 1 to 3 \(n // groups\)"):
        Periodic(11, groups=3, dwell=4, size=4)


@given(any_schedule(), st.integers(1, 60))
@settings(deadline=None)
def test_describe_feeds_the_lemmas(schedule, rounds):
    pattern = schedule.describe(rounds)
    assert schedule.n == pattern.N
    if pattern.case:
        assert (pattern.S is None) == (pattern.case == 2)
        limit = theory.delay_bound(case=pattern.case, N=pattern.N, T=rounds, S=pattern.S, delta=pattern.delta)
        if pattern.case in (3, 4):  # these bounds hold for every schedule, the others in expectation
            assert delays(schedule, rounds).max <= limit


def test_a_markov_client_that_may_never_return_has_no_lemma():
    assert Markov(5, on=0.0, off=0.5).describe().case is None


def frequencies(schedule, rounds=4000):
    counts = np.zeros(schedule.n)
    for t in range(rounds):
        counts[schedule.active(7, t)] += 1
    return counts / rounds


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Uniform(12, 3), 0.25),
        (Independent(12, 0.3), 0.3),
        (Independent(12, np.linspace(0.05, 1.0, 12)), np.linspace(0.05, 1.0, 12)),
        (Sine(12, 6), 0.35),
        (Biased(12, group=2), np.repeat([0.5, 0.45, 0.4, 0.35, 0.3, 0.25], 2)),
        (Reshuffled(12, 3), 0.25),
        (Periodic(12, groups=3, dwell=4, size=2), 1 / 6),
    ],
    ids=lambda v: type(v).__name__,
)
def test_frequencies(schedule, expected):
    assert np.abs(frequencies(schedule) - expected).max() < 0.03  # 4 standard deviations of 4000 tosses


def test_independent_clients_are_independent():
    schedule = Independent(3, [0.3, 0.5, 0.8])
    joint = np.mean([len(schedule.active(1, t)) == 3 for t in range(4000)])
    assert abs(joint - 0.3 * 0.5 * 0.8) < 0.02


def test_sine_follows_the_papers_formula():
    schedule = Sine(1000, 200)
    for t in (0, 2, 3, 7):
        expected = 1000 * 0.2 * (0.3 * math.sin(math.pi * t / 5) + 0.7)
        mean = np.mean([len(schedule.active(seed, t)) for seed in range(60)])
        assert abs(mean - expected) < 8


def test_biased_has_the_papers_groups():
    p = Biased(100).probability()
    assert p[0] == p[10] == 0.5
    assert p[11] == pytest.approx(0.45)
    assert p[98] == pytest.approx(0.1)
    assert p[99] == pytest.approx(0.05)
    assert np.unique(p.round(9)).size == 10


def test_markov_transitions_and_stationary_share():
    on, off = 0.8, 0.95
    schedule = Markov(400, on, off)
    member = np.zeros((1500, 400), dtype=bool)
    for t in range(1500):
        member[t, schedule.active(0, t)] = True
    was, now = member[:-1], member[1:]
    assert abs(now[was].mean() - on) < 0.01
    assert abs((~now)[~was].mean() - off) < 0.005
    assert abs(member[0].mean() - schedule.share) < 0.07
    assert abs(member.mean() - schedule.share) < 0.02
    # Clients change state independently.
    assert abs(np.corrcoef(member[:, 0], member[:, 1])[0, 1]) < 0.15


def test_markov_answers_a_late_round_first():
    late_first, in_order = Markov(30, 0.5, 0.7), Markov(30, 0.5, 0.7)
    late = late_first.active(3, 777)
    walked = [in_order.active(3, t) for t in range(778)]
    assert np.array_equal(late, walked[777])
    assert np.array_equal(late_first.active(3, 130), walked[130])
    assert np.array_equal(late_first.active(4, 5), Markov(30, 0.5, 0.7).active(4, 5))


def test_seeds_and_rounds_differ():
    schedule = Uniform(10**6, 50)
    sets = {tuple(schedule.active(seed, t)) for seed in range(10) for t in range(10)}
    assert len(sets) == 100


def test_numpy_numbers_do_not_overflow():
    schedule = Cyclic(np.int32(10**6), np.int32(10**5))
    assert schedule.active(0, 30_000).tolist() == Cyclic(10**6, 10**5).active(0, 30_000).tolist()
    assert theory.delay_bound(case=1, N=np.int32(10**6), S=np.int32(10), T=np.int32(10**5)) > 0


def test_unequal_probabilities_cost_no_more_than_the_active_clients():
    """One client is always active, a million almost never: the cost is a few draws, not a million."""
    drawn = []

    class Counting(np.random.Generator):
        def random(self, size=None):
            drawn.append(size)
            return super().random(size)

    p = np.full(10**6, 1e-6)
    p[7] = 1.0
    coins = Coins(p)
    active = [coins.toss(Counting(np.random.Philox(seed))) for seed in range(20)]
    assert all(7 in ids for ids in active)
    assert sum(drawn) < 200
    assert np.mean([len(ids) for ids in active]) == pytest.approx(2.0, abs=1.2)


BAD = [
    (lambda: Markov(5, "0.5", 0.5), "on = '0.5'"),
    (lambda: Biased(5, start="0.5"), "start = '0.5'"),
    (lambda: delays(Uniform(3, 1), 5, seed=-1), "seed = -1"),
    (lambda: Uniform(10, 11), "size = 11: a whole number from 1 to 10 (n)"),
    (lambda: Uniform(0, 1), "n = 0"),
    (lambda: Uniform(True, 1), "n = True"),
    (lambda: Cyclic(5, 2.5), "size = 2.5"),
    (lambda: Independent(5, 0.0), "p = 0.0: a probability in (0, 1]"),
    (lambda: Independent(5, 1.01), "p = 1.01"),
    (lambda: Independent(5, math.nan), "p = nan"),
    (lambda: Independent(5, "x"), "p = 'x'"),
    (lambda: Independent(2, [0.5, -0.1]), "p[1] = -0.1"),
    (lambda: Independent(2, [0.5, "y"]), "p = [0.5, 'y']"),
    (lambda: Independent(2, [0.5]), "p of shape = (1,)"),
    (lambda: Independent(2, lambda t: 2.0).active(0, 3), "p(3) = 2.0"),
    (lambda: Sine(5, 6), "size = 6"),
    (lambda: Biased(5, floor=0.0), "floor = 0.0"),
    (lambda: Biased(5, drop=-1), "drop = -1: a finite number, at least 0"),
    (lambda: Markov(5, 1.0, 0.5), "on = 1.0: a probability in [0, 1)"),
    (lambda: Markov(5, 0.5, 0.5).active(0, -1), "round = -1"),
    (lambda: Explicit(3, [[0, 3]]), "sets[0] = 3: client id out of range"),
    (lambda: Explicit(3, [[0], [1, 1]]), "sets[1] = 1: client id given twice"),
    (lambda: Explicit(3, [[0.5]]), "sets[0] = [0.5]"),
    (lambda: Explicit(3, [[[0], [1, 2]]]), "sets[0] = [[0], [1, 2]]"),
    (lambda: Explicit(3, []), "sets = []: at least one round"),
    (lambda: Explicit(3, [[0]]).active(0, 1), "round = 1: from 0 to 0, or repeat=True"),
    (lambda: delays(Uniform(3, 1), 0), "rounds = 0"),
    (lambda: build("schedule", SCHEDULES, "unifrom", {}), "schedule = 'unifrom': did you mean 'Uniform'?"),
    (lambda: build("schedule", SCHEDULES, "uniform", {"n": 3}), "Uniform.size = None: is required"),
    (lambda: build("schedule", SCHEDULES, "uniform", {"n": 3, "sise": 1}), "did you mean 'size'?"),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[m for _, m in BAD])
def test_bad_input_is_one_clear_line(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_horizon_leaves_delta_open():
    assert Independent(3, lambda t: 1 / (t + 1)).describe().delta is None
    assert Independent(3, lambda t: 1 / (t + 1)).describe(4).delta == 0.25
