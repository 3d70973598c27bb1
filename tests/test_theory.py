"""Theorem 1, the corollary and the lemmas, against numbers worked out by hand and against simulation."""

import math

import numpy as np
import pytest

from fedsum import Independent, InputError, Markov, Sine, Uniform, delays, theory

KNOWN = {"L": 2.0, "sigma": 3.0, "N": 100, "K": 10, "T": 2000, "Delta_f": 5.0}


def test_learning_rates_by_hand():
    rates = theory.learning_rates(**KNOWN, tau_max=25, tau_avg=16)
    assert rates.eta_g == pytest.approx(0.2)
    # sqrt(100*25*5) / sqrt(16*10*2000*2*9) = 111.8034 / 2400
    assert rates.eta_l == pytest.approx(min(1 / (10 * 5 * 10 * 2), 111.80339887498948 / 2400))
    noisier = theory.learning_rates(**(KNOWN | {"sigma": 300.0}), tau_max=25, tau_avg=16)
    assert noisier.eta_l == pytest.approx(111.80339887498948 / 240000)


def test_bound_by_hand():
    # 30 sqrt(16*2*9*5)/sqrt(100*10*2000) + 20*25*(2*5 + 7)/2000
    expected = 30 * math.sqrt(1440) / math.sqrt(2_000_000) + 4.25
    assert theory.bound(**KNOWN, F_0=7.0, tau_max=25, tau_avg=16) == pytest.approx(expected)


def test_full_participation_and_no_noise():
    full = theory.learning_rates(**KNOWN, tau_max=0, tau_avg=0)
    assert full == theory.learning_rates(**KNOWN, tau_max=1, tau_avg=1)
    assert full.eta_g == 1.0
    silent = theory.learning_rates(**(KNOWN | {"sigma": 0.0}), tau_max=4, tau_avg=2)
    assert silent.eta_l == pytest.approx(1 / (10 * 2 * 10 * 2))
    assert theory.bound(**(KNOWN | {"sigma": 0.0}), F_0=0.0, tau_max=0, tau_avg=0) == pytest.approx(0.1)
    at_optimum = theory.learning_rates(**(KNOWN | {"Delta_f": 0.0}), tau_max=4, tau_avg=2)
    assert at_optimum.eta_l > 0


def test_lemmas_by_hand():
    assert theory.delay_bound(case=1, N=100, S=20, T=2000) == pytest.approx(20 * math.log(200_000))
    assert theory.delay_bound(case=2, N=100, delta=0.2, T=2000) == pytest.approx(20 * math.log(200_000))
    assert theory.delay_bound(case=2, N=1, delta=0.01, T=2) == pytest.approx(400 * math.log(100))
    assert theory.delay_bound(case=3, N=100, S=20, T=2000) == 10
    assert theory.delay_bound(case=4, N=100, S=20, T=2000) == 20


def test_corollary_by_hand():
    log = math.log(200_000)
    noise, start = 60 * math.sqrt(2 * 9 * 5), 80 * (10 + 7)
    for case, extra, factor in [
        (1, {"S": 20}, log),
        (2, {"delta": 0.2}, log),
        (3, {"S": 20}, 1),
        (4, {"S": 20}, 1),
    ]:
        expected = noise * math.sqrt(factor) / math.sqrt(20 * 10 * 2000) + start * 100 * factor / (20 * 2000)
        assert theory.case_bound(case=case, **KNOWN, F_0=7.0, **extra) == pytest.approx(expected)


@pytest.mark.parametrize(
    "schedule",
    [Uniform(40, 4), Independent(40, 0.1), Sine(40, 8), Markov(40, on=0.5, off=0.9)],
    ids=lambda s: type(s).__name__,
)
def test_lemmas_hold_in_expectation(schedule):
    pattern = schedule.describe()
    limit = theory.delay_bound(case=pattern.case, N=40, T=300, S=pattern.S, delta=pattern.delta)
    mean = np.mean([delays(schedule, 300, seed).max for seed in range(8)])
    assert limit / 20 < mean <= limit


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.learning_rates(**(KNOWN | {"L": 0}), tau_max=1, tau_avg=1), "L = 0"),
        (lambda: theory.learning_rates(**(KNOWN | {"sigma": -1}), tau_max=1, tau_avg=1), "sigma = -1"),
        (lambda: theory.learning_rates(**(KNOWN | {"K": 0}), tau_max=1, tau_avg=1), "K = 0"),
        (lambda: theory.bound(**KNOWN, F_0=math.nan, tau_max=1, tau_avg=1), "F_0 = nan"),
        (lambda: theory.bound(**KNOWN, F_0="a", tau_max=1, tau_avg=1), "F_0 = 'a'"),
        (lambda: theory.delay_bound(case=5, N=10, T=10, S=1), "case = 5: a whole number from 1 to 4"),
        (lambda: theory.delay_bound(case=1, N=10, T=10), "S = None: Case 1 needs"),
        (lambda: theory.delay_bound(case=1, N=10, T=10, S=11), "S = 11"),
        (lambda: theory.delay_bound(case=2, N=10, T=10), "delta = None: Case 2 needs"),
        (lambda: theory.delay_bound(case=2, N=10, T=10, delta=0), "delta = 0"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)
