"""Schedules: pure, sorted, in range, with the documented distribution."""

import dataclasses
import math
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsum import (
    Asynchronous,
    Availability,
    Biased,
    Cyclic,
    Devices,
    Diurnal,
    Explicit,
    Independent,
    InputError,
    Markov,
    Periodic,
    Reshuffled,
    Sampled,
    Sine,
    Spaced,
    Uniform,
    delays,
    theory,
)
from fedsum.base.registry import build
from fedsum.participation import SCHEDULES, fit
from fedsum.participation.independent import Coins

probabilities = st.floats(0.01, 1.0)


@st.composite
def any_schedule(draw):
    n = draw(st.integers(1, 40))
    size = draw(st.integers(1, n))
    p = draw(probabilities)
    vector = draw(st.lists(probabilities, min_size=n, max_size=n))
    chain = st.floats(0.0, 0.99)
    start = draw(st.lists(st.integers(0, 30), min_size=n, max_size=n))
    ends = [time + draw(st.integers(1, 20)) for time in start]
    intervals = Availability.from_intervals(range(n), start, ends, n=n, round_length=1, offset=0, repeat=True)
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
                Spaced(n, size, separation=draw(st.integers(1, n // size))),
                Diurnal(n, peak=p, trough=p * draw(st.floats(0, 1)), period=draw(st.floats(1, 50)), zones=size),
                intervals,
                Sampled(intervals, size, oversample=1.5),
                Sampled(Markov(n, on=0.6, off=draw(chain)), size),
                Sampled(intervals, size, "oldest"),
                Sampled(Independent(n, p), size, "oldest"),
                Asynchronous(n, Devices(seconds_per_step=vector), size, jitter=p),
            ]
        )
    )


@given(any_schedule(), st.integers(0, 2**32), st.lists(st.integers(0, 300), min_size=1, max_size=5))
def test_active_is_a_pure_function_of_seed_and_round(schedule, seed, rounds):
    first = {t: schedule.active(seed, t).copy() for t in rounds}
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
        (Spaced(12, 2, separation=5), 1 / 6),
        (Diurnal(12, peak=0.5, trough=0.1, period=8, zones=3), 0.3),
        (Sampled(Explicit(4, [[0, 1, 2], [1, 3]], repeat=True), 1), [1 / 6, 5 / 12, 1 / 6, 1 / 4]),
        (Sampled(Explicit(4, [[0, 1, 2], [1, 3]], repeat=True), 1, "oldest"), [1 / 4] * 4),
        (Sampled(Independent(12, 0.999), 4, oversample=1.5), 0.5),
    ],
    ids=lambda v: type(v).__name__,
)
def test_frequencies(schedule, expected):
    assert np.abs(frequencies(schedule) - expected).max() < 0.03  # 4 standard deviations of 4000 tosses


def test_spaced_clients_rest_and_are_drawn_uniformly():
    schedule = Spaced(30, 5, separation=4)
    last, gaps = np.full(30, -99), []
    for t in range(1500):
        active = schedule.active(2, t)
        gaps += (t - last[active])[last[active] >= 0].tolist()
        last[active] = t
    assert min(gaps) == 4
    # 15 of 30 clients may be drawn, so a client that may come is drawn with probability 1/3.
    assert np.mean(np.array(gaps) == 4) == pytest.approx(1 / 3, abs=0.02)
    every = Spaced(6, 2, separation=3)
    assert all(every.active(0, t).tolist() == every.active(0, t + 3).tolist() for t in range(9))


def test_diurnal_zones_have_their_own_peaks():
    schedule = Diurnal(3000, peak=0.6, trough=0.0, period=12, zones=3)
    member = np.zeros((12, 3000))
    for seed in range(20):
        for t in range(12):
            member[t, schedule.active(seed, t)] += 1 / 20
    shares = member.reshape(12, 3, 1000).mean(axis=2)
    assert shares.argmax(axis=0).tolist() == [0, 4, 8]
    t = np.arange(12)[:, None]
    expected = 0.3 * (1 + np.cos(2 * np.pi * (t / 12 - np.arange(3) / 3)))
    assert np.abs(shares - expected).max() < 0.015
    assert schedule.describe().case is None
    assert Diurnal(9, peak=0.6, trough=0.1, period=12).describe().delta == 0.1


def test_sampled_takes_the_oldest_of_those_available():
    available = Independent(40, 0.4)
    schedule, last = Sampled(available, 6, "oldest"), np.full(40, -1)
    for t in range(200):
        there, active = available.active(5, t), schedule.active(5, t)
        assert set(active.tolist()) <= set(there.tolist())
        assert len(active) == min(6, len(there))
        others = np.setdiff1d(there, active)
        if len(others):
            assert last[active].max() <= last[others].min()
        last[active] = t
    everyone = Sampled(Independent(40, 1.0), 6, "oldest")
    assert delays(everyone, 100).max == 6  # 40 clients, 6 per round: nobody waits longer


def test_sampled_draws_apart_from_its_availability():
    """The server's draws and the availability's have the same seed and round, but not the same random numbers."""
    inner = Uniform(1000, 500)
    chosen = Sampled(inner, 250).active(3, 7)
    assert not np.array_equal(chosen, inner.active(3, 7)[Uniform(500, 250).active(3, 7)])


def test_sampling_from_intervals_costs_no_more_than_the_sample():
    n = 10**6
    starts = np.arange(n) % 40
    schedule = Sampled(
        Availability.from_intervals(np.arange(n), starts, starts + 8, n=n, round_length=1, offset=0, repeat=True), 100
    )
    schedule.active(0, 3)
    tracemalloc.start()
    assert all(len(schedule.active(0, t)) == 100 for t in range(8, 60, 9))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000  # 200,000 clients are available per round


def test_schedules_that_depend_on_their_past_can_be_pickled():
    for schedule in (Sampled(Uniform(9, 5), 2, "oldest"), Spaced(9, 2, 3)):
        late = schedule.active(1, 30).tolist()
        again = pickle.loads(pickle.dumps(schedule))
        assert again == schedule
        assert again.active(1, 30).tolist() == late


def test_fit_finds_the_generator_of_a_record():
    for truth in (Markov(300, on=0.85, off=0.97), Diurnal(300, 0.4, 0.05, period=24), Diurnal(300, 0.3, 0, 36, 3)):
        nearest, other = fit(truth, 300, seed=4)
        assert type(nearest.generator) is type(truth)
        assert nearest.nats < other.nats
        found, expected = (np.array(dataclasses.astuple(one)[1:], dtype=object) for one in (nearest.generator, truth))
        for value, true in zip(found, expected, strict=True):
            if isinstance(true, float | int):
                assert value == pytest.approx(true, rel=0.03, abs=0.03)
    assert [type(one.generator) for one in fit(Uniform(9, 3), 5)] == [Markov]  # too short for a cycle
    rare, frequent = Explicit(5, [[], [1]] + [[]] * 18), Explicit(5, [range(5)] * 19 + [range(4)])
    assert all(math.isfinite(one.nats) for schedule in (rare, frequent) for one in fit(schedule, 20))


@pytest.mark.parametrize(
    ("schedule", "rounds", "message"),
    [
        (Explicit(5, [[]] * 20), 20, "active clients per round = 0: no client is ever active; .* leave out --fit"),
        (Explicit(5, [range(5)] * 20), 20, "active clients per round = 5: no client is ever absent; .* leave out"),
        (Explicit(5, [[1, 2]]), 1, "fit to rounds = 1: at least 2; .* leave out --fit"),
    ],
)
def test_a_log_without_changes_is_not_fitted(schedule, rounds, message):
    with pytest.raises(InputError, match=message):
        fit(schedule, rounds)


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
    (lambda: Spaced(10, 3, 4), "separation = 4: a whole number from 1 to 3 (n // size)"),
    (lambda: Spaced(10, 3, 3).active(0, -1), "round = -1"),
    (lambda: Diurnal(5, peak=0.1, trough=0.2, period=9), "trough = 0.2: at most the peak, 0.1"),
    (lambda: Diurnal(5, peak=0.1, trough=0.0, period=0.5), "period = 0.5"),
    (lambda: Diurnal(5, peak=0.1, trough=0.0, period=9, zones=6), "zones = 6"),
    (lambda: Sampled(5, 1), "availability = 5: an Availability, a Trace or another schedule"),
    (lambda: Sampled(Uniform(5, 3), 6), "size = 6: a whole number from 1 to 5 (n)"),
    (lambda: Sampled(Uniform(5, 3), 2, "newest"), "order = 'newest'"),
    (lambda: Sampled(Uniform(5, 3), 2, oversample=0.5), "oversample = 0.5"),
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


def test_probabilities_by_name_are_refused():
    with pytest.raises(
        InputError, match=r"p = 'dict': numbers in the order .* \[p\[name\] for name in task.client_names\]"
    ):
        Independent(2, {"anna": 0.5, "bert": 0.1})
