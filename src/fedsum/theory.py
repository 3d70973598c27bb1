"""Theorem 1 of the paper, its corollary, and the delay lemmas.

Symbols: L smoothness, sigma gradient noise (E||g - grad f_i||^2 <= sigma^2), N clients, K local steps, T rounds,
Delta_f = f(x0) - f*, F_0 = (1/N) sum_i ||grad f_i(x0)||^2, tau_max and tau_avg the delays.

Where the main text (1 + tau_avg) and the appendix that proves it (max{1, tau_avg}) differ, the appendix
stands. With full participation tau_max = 0, and max{1, tau_max} is used in its place: printed literally, eta_g
would be infinite and the bound 0.
"""

import math
from typing import NamedTuple

from .base.checks import InputError, integer, probability, real


class Rates(NamedTuple):
    eta_l: float
    """local learning rate"""
    eta_g: float
    """global learning rate"""


def learning_rates(
    *, L: float, sigma: float, N: int, K: int, T: int, Delta_f: float, tau_max: float, tau_avg: float
) -> Rates:
    """Theorem 1's learning rates for FedSUM-B, FedSUM and FedSUM-CR.

    eta_g = 1/sqrt(tau_max), eta_l = min{ 1/(10 sqrt(tau_max) K L),
    sqrt(N tau_max Delta_f) / sqrt(max{1, tau_avg} K T L sigma^2) }; sigma = 0 means the first.

    >>> learning_rates(L=1, sigma=0, N=100, K=10, T=2000, Delta_f=1, tau_max=25, tau_avg=16)
    Rates(eta_l=0.002, eta_g=0.2)
    """
    _check(L=L, sigma=sigma, N=N, K=K, T=T, Delta_f=Delta_f, tau_max=tau_max, tau_avg=tau_avg)
    tau_max = max(1.0, tau_max)
    eta_l = 1 / (10 * math.sqrt(tau_max) * K * L)
    # Delta_f = 0 starts at the optimum; the second rate would be 0, and nothing would be learned of it.
    if sigma > 0 and Delta_f > 0:
        eta_l = min(eta_l, math.sqrt(N * tau_max * Delta_f) / math.sqrt(max(1, tau_avg) * K * T * L * sigma**2))
    return Rates(eta_l=eta_l, eta_g=1 / math.sqrt(tau_max))


def bound(
    *,
    L: float,
    sigma: float,
    N: int,
    K: int,
    T: int,
    Delta_f: float,
    F_0: float,
    tau_max: float,
    tau_avg: float,
) -> float:
    """Theorem 1's bound on (1/T) sum_t E||grad f(x^(t))||^2, for its own learning rates.

    30 sqrt(max{1, tau_avg} L sigma^2 Delta_f) / sqrt(N K T) + 20 tau_max (L Delta_f + F_0) / T

    >>> bound(L=1, sigma=0, N=100, K=10, T=2000, Delta_f=1, F_0=1, tau_max=25, tau_avg=16)
    0.5
    """
    _check(L=L, sigma=sigma, N=N, K=K, T=T, Delta_f=Delta_f, F_0=F_0, tau_max=tau_max, tau_avg=tau_avg)
    noise = 30 * math.sqrt(max(1, tau_avg) * L * sigma**2 * Delta_f) / math.sqrt(N * K * T)
    return noise + 20 * max(1.0, tau_max) * (L * Delta_f + F_0) / T


def delay_bound(*, case: int, N: int, T: int, S: int | None = None, delta: float | None = None) -> float:
    """The delay lemmas: a bound on E[tau_max] over T rounds for Cases 1-4 of section 2.

    Case 1 (uniform): 4N/S ln(NT); Case 2 (independent): 4/delta max{ln NT, ln 1/delta}; Case 3 (cyclic):
    2N/S; Case 4 (reshuffled cyclic): 4N/S. The appendix swaps the names of Cases 3 and 4; section 2 stands.

    >>> delay_bound(case=3, N=100, T=2000, S=20)
    10.0
    """
    factor = {1: 4.0, 2: 4.0, 3: 2.0, 4: 4.0}
    turn = _turn(case, N, S, delta)
    return factor[case] * turn * _logarithm(case, N, T, delta)


def case_bound(
    *,
    case: int,
    L: float,
    sigma: float,
    N: int,
    K: int,
    T: int,
    Delta_f: float,
    F_0: float,
    S: int | None = None,
    delta: float | None = None,
) -> float:
    """The corollary: Theorem 1 with the delay lemmas put in, for Cases 1-4 of section 2.

    60 sqrt(L sigma^2 Delta_f log) / sqrt(S K T) + 80 (L Delta_f + F_0) N log / (S T), with log = ln(NT) in
    Case 1, max{ln NT, ln 1/delta} in Case 2 (where delta N stands for S), and 1 in Cases 3 and 4. The paper
    prints Case 2's logarithm outside the root; it belongs under it.

    >>> case_bound(case=3, L=1, sigma=0, N=100, K=10, T=2000, Delta_f=1, F_0=1, S=20)
    0.4
    """
    _check(L=L, sigma=sigma, N=N, K=K, T=T, Delta_f=Delta_f, F_0=F_0)
    turn, log = _turn(case, N, S, delta), _logarithm(case, N, T, delta)
    noise = 60 * math.sqrt(L * sigma**2 * Delta_f * log * turn) / math.sqrt(N * K * T)
    return noise + 80 * (L * Delta_f + F_0) * turn * log / T


def _turn(case: int, N: int, S: int | None, delta: float | None) -> float:
    """How many rounds a client waits for its turn on average, at most: N/S, or 1/delta."""
    integer("case", case, low=1, high=4)
    integer("N", N, low=1)
    if case == 2:
        if delta is None:
            raise InputError("delta", None, "Case 2 needs the least probability of taking part, in (0, 1]")
        return 1 / probability("delta", delta)
    if S is None:
        raise InputError("S", None, f"Case {case} needs the number of active clients a round")
    return int(N) / integer("S", S, low=1, high=N, high_name="N")


def _logarithm(case: int, N: int, T: int, delta: float | None) -> float:
    both = int(N) * integer("T", T, low=1)
    if case == 1:
        return math.log(both)
    if case == 2 and delta is not None:
        return max(math.log(both), math.log(1 / delta))
    return 1.0


def _check(**arguments: float) -> None:
    for name, value in arguments.items():
        if name in ("N", "K", "T"):
            integer(name, value, low=1)
        elif name == "L":
            real(name, value, above=0)
        else:
            real(name, value, low=0)
