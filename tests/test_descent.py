"""The descent lemmas: by hand, against Theorem 1, their own proof and simulation; the illustrations of appendix A."""

import math
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from fedsum import FedAvg, FedSUM, FedSUMB, FedSUMCR, InputError, Uniform, delays, simulate, theory
from fedsum.tasks import Quadratic

KNOWN = {"L": 2.0, "sigma": 3.0, "N": 100, "K": 10, "T": 2000, "Delta_f": 5.0, "tau_max": 25, "tau_avg": 16}


def drawn(count):
    """Constants over many orders of magnitude; tau_avg at most tau_max, and full participation among them."""
    draw = np.random.default_rng(0)
    for number in range(count):
        tau_max = 0 if number % 10 == 0 else int(10 ** draw.uniform(0, 3))
        yield {
            "L": 10 ** draw.uniform(-3, 3),
            "sigma": 0.0 if number % 7 == 0 else 10 ** draw.uniform(-3, 3),
            "N": int(10 ** draw.uniform(0, 4)),
            "K": int(10 ** draw.uniform(0, 3)),
            "T": int(10 ** draw.uniform(0, 5)),
            "Delta_f": 10 ** draw.uniform(-3, 3),
            "tau_max": tau_max,
            "tau_avg": tau_max * draw.uniform(),
        }


def test_bounds_by_hand():
    # FedSUM-B: 2*5/(2e-4*10*2000) + 10*2e-4*16*9*2/100 + 2*25*7/2000
    b = theory.bound_at(0.001, 0.2, algorithm="FedSUM-B", **KNOWN, F_0=7.0)
    assert b == pytest.approx(2.5 + 0.00576 + 0.175)
    # FedSUM: 2*5/(2e-4*10*2000) + 9*2e-4*16*9*2/100 + 3*25*7/2000 + 150*1e-6*10*9*4/100
    for name in ("FedSUM", "fedsum_cr"):
        assert theory.bound_at(0.001, 0.2, algorithm=name, **KNOWN, F_0=7.0) == pytest.approx(
            2.5 + 0.005184 + 0.2625 + 0.00054
        )


def test_conditions_are_refused_beyond():
    # tau_max K L = 500, sqrt(tau_max) K L = 100
    local = "'s descent lemma needs eta_l <= 1/(10 sqrt(tau_max) K L) = 0.001"
    for eta_l, eta_g, name, message in [
        (0.00101, 0.1, "FedSUM", f"eta_l = 0.00101: FedSUM{local}"),
        (0.00101, 0.1, "FedSUM-CR", f"eta_l = 0.00101: FedSUM-CR{local}"),
        (0.0005, 0.41, "FedSUM", "lemma needs eta_g eta_l <= 1/(10 tau_max K L) = 0.0002"),
        (0.5, 0.00051, "FedSUM-B", "lemma needs eta_g eta_l <= 1/(8 tau_max K L) = 0.00025"),
        (0.001, 0.0, "FedSUM", "eta_g = 0.0: a finite number greater than 0"),
        (0.001, 0.1, "FedAvg", "algorithm = 'FedAvg': "),
        (0.001, 0.1, None, "algorithm = None: "),
    ]:
        with pytest.raises(InputError) as caught:
            theory.bound_at(eta_l, eta_g, algorithm=name, **KNOWN, F_0=7.0)
        assert message in str(caught.value)
    with pytest.raises(InputError, match="proof = 'MIFA'"):
        theory.bound(**KNOWN, F_0=7.0, proof="MIFA")
    for name in theory.FAMILY:
        for eta_g in (0.01, 0.2, 1.0, 30.0):
            eta_l = theory.largest_eta_l(eta_g, algorithm=name, L=2.0, K=10, tau_max=25)
            assert theory.bound_at(eta_l, eta_g, algorithm=name, **KNOWN, F_0=7.0) > 0
            with pytest.raises(InputError, match="descent lemma needs"):
                theory.bound_at(1.001 * eta_l, eta_g, algorithm=name, **KNOWN, F_0=7.0)


def test_theorem_1_follows_from_the_lemmas():
    """The theorem's rates in the lemma give at most the proof's bound, which is at most the stated bound."""
    closest = dict.fromkeys(theory.FAMILY, 0.0)
    for constants in drawn(1000):
        for name in theory.FAMILY:
            rates = theory.learning_rates(**constants)
            for F_0 in (0.0, constants["L"] * constants["Delta_f"]):
                lemma = theory.bound_at(*rates, algorithm=name, **constants, F_0=F_0)
                proved = theory.bound(**constants, F_0=F_0, proof=name)
                assert lemma <= proved * (1 + 1e-12)
                assert proved <= theory.bound(**constants, F_0=F_0)
                closest[name] = max(closest[name], lemma / proved)
        own = theory.fedsum_b_rates(eta_g=3.0, **constants)
        assert own.eta_g == 3.0
        assert own.eta_l * 3 == pytest.approx(rates.eta_l * rates.eta_g)
    assert closest["FedSUM-B"] == pytest.approx(1, abs=0.01)  # so that a smaller constant than 12 would be caught
    assert closest["FedSUM"] > 0.9  # 26 takes both terms of eta_l's minimum at once, and is never reached
    assert [theory.bound(**(KNOWN | {"Delta_f": 1e-9}), F_0=0.0, proof=name) for name in theory.FAMILY] == [
        pytest.approx(constant * math.sqrt(16 * 2 * 9 * 1e-9 / 2e6), rel=1e-3) for constant in (12, 26, 26)
    ]


def test_best_rates_minimise_the_bound():
    draw = np.random.default_rng(1)
    gains = []
    for constants in drawn(400):
        for name in theory.FAMILY:
            eta_g = None if draw.uniform() < 0.5 else 10 ** draw.uniform(-2, 2)
            best = theory.best_rates(eta_g=eta_g, algorithm=name, **constants)
            smallest = theory.bound_at(*best, algorithm=name, **constants, F_0=0.0)
            limit = theory.largest_eta_l(
                best.eta_g, algorithm=name, L=constants["L"], K=constants["K"], tau_max=constants["tau_max"]
            )
            others = [limit, *np.minimum(limit, best.eta_l * np.array([0.01, 0.5, 0.99, 1.01, 2, 100]))]
            bounds = [theory.bound_at(eta_l, best.eta_g, algorithm=name, **constants, F_0=0.0) for eta_l in others]
            assert smallest <= min(bounds) * (1 + 1e-12)
            if eta_g is None:
                assert best.eta_g == theory.learning_rates(**constants).eta_g
                gains.append(theory.bound(**constants, F_0=0.0, proof=name) / smallest)
    assert min(gains) >= 1 - 1e-12
    assert max(gains) > 2
    at_optimum = theory.best_rates(**(KNOWN | {"Delta_f": 0.0}))
    assert at_optimum.eta_l == theory.best_rates(**(KNOWN | {"sigma": 0.0})).eta_l == pytest.approx(0.001)
    assert theory.best_rates(**(KNOWN | {"sigma": 1e-200})).eta_l == pytest.approx(0.001)  # its square is 0
    same_product = [theory.bound_at(1e-4 / eta_g, eta_g, **KNOWN, F_0=0.0) for eta_g in (0.2, 1, 5, 25)]
    assert same_product == sorted(same_product, reverse=True)  # why best_rates does not choose eta_g


@pytest.mark.parametrize("tau_max", [0, 1, 2, 5, 100])
@pytest.mark.parametrize("N", [1, 2, 100])
def test_the_lemmas_proofs_with_their_slips_repaired(N, tau_max):
    """docs/theory.md, "The proofs": the coefficients of a careful proof are within those that the lemmas state.

    u = eta_l K L sqrt(tau) and v = eta_g eta_l K L tau, tau = max{1, tau_max}. A client returns after at most
    tau_max + 1 = gap tau rounds. The square of a sum of three is split with the weights 3.18, 3.18 and 2.7, not 3.
    """
    tau = max(1, tau_max)
    gap, reach = (tau_max + 1) / tau, tau_max / tau
    first = 2.7
    other = 2 / (1 - 1 / first)
    for u in np.linspace(0, 0.1, 6):
        for v in np.linspace(0, 0.1, 6):
            # lem:descent-norm: the drift of the local steps, solved for itself
            solved = 1 / (1 - 10 / N**2 * u**2 / tau * (1 / 2 + gap * tau / 3))
            stale = 20 / 3 * v**2 * gap**2 / N**2
            signal = 2 * v / tau + 4 * v * reach + 2 * other * (v * reach) ** 2
            signal += other * u**2 / tau * solved * (stale + 4 / 3 * gap * tau)
            assert signal < 1  # eq:descent-sum4
            assert 2 + 6 + 2 * other * v * reach <= 9
            assert other * solved * (10 * (1 / 2 + 1 / 3) / N + 4 / 3 + stale) <= 150
            assert first * tau_max + 10 / 3 * other * solved * gap * u**2 / N**2 <= 3 * tau
    v = 1 / 8  # FedSUM-B, eq-fedsum-a:descent-sum3
    assert 2 * v / tau + 4 * (v * reach) ** 2 + 4 * v * reach < 1
    assert 2 + 6 + 4 * v * reach <= 10


@pytest.mark.parametrize("algorithm", [FedSUMB(), FedSUM(), FedSUMCR()], ids=lambda a: a.name)
@pytest.mark.parametrize("size", [3, 10], ids=["uniform", "full"])
def test_the_lemmas_bound_the_mean_squared_gradient(algorithm, size):
    """On both sides of Theorem 1's rates: both rates smaller, both larger, and each larger with the other smaller."""
    N, T, K = 10, 150, 3
    task, schedule = Quadratic.random(N, 5, noise=40.0, spread=0.3, seed=4), Uniform(N, size)
    measured = delays(schedule, T)
    known = task.constants() | {"N": N, "K": K, "T": T, "tau_max": measured.max, "tau_avg": measured.avg}
    rates = theory.learning_rates(**{name: value for name, value in known.items() if name != "F_0"})
    for local, server in [(0.2, 0.5), (2.0, 2.0), (4.0, 0.5), (0.5, 4.0)]:
        eta_l, eta_g = local * rates.eta_l, server * rates.eta_g
        limit = theory.bound_at(eta_l, eta_g, algorithm=algorithm.label, **known)
        history = simulate(
            task,
            algorithm,
            schedule,
            rounds=T,
            local_steps=K,
            eta_l=eta_l,
            eta_g=eta_g,
            eval_every=1,
            dtype=torch.float64,
        )
        mean = np.mean([row["gradient_norm_sq"] for row in history.rows[:-1]])
        assert limit / 1000 < mean <= limit  # a bound a thousand times smaller would be caught


def test_the_illustrations(tmp_path):
    """FedSUM ends nearer to the optimum than FedAvg, and the files stay small."""
    script = Path(__file__).parent.parent / "benchmarks" / "illustrations.py"
    illustrations = runpy.run_path(str(script))
    optimum = illustrations["Recorded"]().optimum.numpy()
    ends = [illustrations["run"](algorithm, 0.06).models[-1] for algorithm in (FedSUM(), FedAvg())]
    family, fedavg = (np.linalg.norm(end - optimum) for end in ends)
    assert family < fedavg / 4
    for path in illustrations["draw"](tmp_path):
        assert 10_000 < path.stat().st_size < 150_000
