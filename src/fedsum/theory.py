"""Theorem 1 of the paper, its corollary, the delay lemmas, and FedSUM's stability limit.

Symbols: L smoothness, sigma gradient noise (E||g - grad f_i||^2 <= sigma^2), N clients, S active clients per round,
delta the least probability that a client is active, K local steps, T rounds, eta_l and eta_g the local and global
learning rates, Delta_f = f(x0) - f*, F_0 = (1/N) sum_i ||grad f_i(x0)||^2. tau_t is the longest any client has been
away in round t, in rounds; tau_max and tau_avg are its maximum and its mean over the rounds.

The main text has 1 + tau_avg where the appendix, which has the proof, has max{1, tau_avg}; this module follows the
appendix. With full participation tau_max = 0, and max{1, tau_max} is used in its place: with the printed formula,
eta_g would be infinite and the bound 0.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .base.checks import InputError, integer, probability, real

_ANGLES = 4000
"""points of the unit circle at which a stability limit is searched"""


class Rates(NamedTuple):
    """Learning rates."""

    eta_l: float
    """local learning rate"""
    eta_g: float
    """global learning rate"""


def learning_rates(
    *, L: float, sigma: float, N: int, K: int, T: int, Delta_f: float, tau_max: float, tau_avg: float
) -> Rates:
    """Theorem 1's learning rates for FedSUM-B, FedSUM and FedSUM-CR.

    eta_g = 1/sqrt(tau_max), eta_l = min{ 1/(10 sqrt(tau_max) K L),
    sqrt(N tau_max Delta_f) / sqrt(max{1, tau_avg} K T L sigma^2) }; the first term if sigma = 0.

    >>> learning_rates(L=1, sigma=0, N=100, K=10, T=2000, Delta_f=1, tau_max=25, tau_avg=16)
    Rates(eta_l=0.002, eta_g=0.2)
    """
    _check(L=L, sigma=sigma, N=N, K=K, T=T, Delta_f=Delta_f, tau_max=tau_max, tau_avg=tau_avg)
    tau_max = max(1.0, tau_max)
    eta_l = 1 / (10 * math.sqrt(tau_max) * K * L)
    # Delta_f = 0 means that x0 is optimal. The second term would then be 0, a useless rate.
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
    """Theorem 1's bound on (1/T) sum_t E||grad f(x^(t))||^2, for the theorem's learning rates.

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
    2N/S; Case 4 (reshuffled cyclic): 4N/S. The appendix swaps the names of Cases 3 and 4; the names here are
    section 2's.

    >>> delay_bound(case=3, N=100, T=2000, S=20)
    10.0
    """
    factor = {1: 4.0, 2: 4.0, 3: 2.0, 4: 4.0}
    interval = _interval(case, N, S, delta)
    return factor[case] * interval * _logarithm(case, N, T, delta)


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
    """The corollary: Theorem 1 combined with the delay lemmas, for Cases 1-4 of section 2.

    60 sqrt(L sigma^2 Delta_f log) / sqrt(S K T) + 80 (L Delta_f + F_0) N log / (S T), with log = ln(NT) in
    Case 1, max{ln NT, ln 1/delta} in Case 2 (where delta N stands for S), and 1 in Cases 3 and 4. The paper
    prints Case 2's logarithm outside the root; it belongs under it.

    >>> case_bound(case=3, L=1, sigma=0, N=100, K=10, T=2000, Delta_f=1, F_0=1, S=20)
    0.4
    """
    _check(L=L, sigma=sigma, N=N, K=K, T=T, Delta_f=Delta_f, F_0=F_0)
    interval, log = _interval(case, N, S, delta), _logarithm(case, N, T, delta)
    noise = 60 * math.sqrt(L * sigma**2 * Delta_f * log * interval) / math.sqrt(N * K * T)
    return noise + 80 * (L * Delta_f + F_0) * interval * log / T


def stability_limit(ages: Sequence[float] | NDArray[np.float64], *, K: int, follows_sum: bool = True) -> float:
    """The largest eta_g eta_l K times curvature at which FedSUM is stable, for any distribution of gradient ages.

    The server steps along a mean of gradients that are 0, 1, ... rounds old. The limit is the smallest a > 0 with a
    solution of (z - 1)(z + c a s) + a z s = 0 on |z| = 1, where s is the mean of z^-age and c = (K - 1)/(2K). See
    docs/theory.md, which also has measured limits. Not in the paper.

    Args:
      ages: the share of gradients per age.
      K: local steps.
      follows_sum: whether local steps follow the server's sum, as FedSUM's do; c = 0 for FedSUM-B's.

    >>> p = 0.2
    >>> round(stability_limit([p * (1 - p) ** age for age in range(200)], K=10), 2)
    9.47
    """
    integer("K", K, low=1)
    shares = np.asarray(ages, dtype=np.float64)
    if shares.ndim != 1 or not np.isfinite(shares).all() or (shares < 0).any() or not shares.sum() > 0:
        raise InputError("ages", ages, "the share of gradients per age, at least one of them positive")
    c = (K - 1) / (2 * K) if follows_sum else 0.0
    angle = np.linspace(0, np.pi, _ANGLES + 1)[1:]
    z = np.exp(1j * angle)
    s = np.polynomial.polynomial.polyval(1 / z, shares / shares.sum())
    steps = -z * (z - 1) / (s * (z + c * (z - 1)))
    # At z = -1 the equation is real. Elsewhere a solution is a change of the sign of the imaginary part.
    crossings = np.flatnonzero(np.diff(np.sign(steps[:-1].imag)) != 0)
    limits = np.append(steps.real[crossings], steps.real[-1])
    return float(limits[limits > 0].min(initial=math.inf))


def _interval(case: int, N: int, S: int | None, delta: float | None) -> float:
    """A bound on the mean number of rounds from one active round of a client to the next: N/S, or 1/delta."""
    integer("case", case, low=1, high=4)
    integer("N", N, low=1)
    if case == 2:
        if delta is None:
            raise InputError("delta", None, "Case 2 needs the least probability that a client is active, in (0, 1]")
        return 1 / probability("delta", delta)
    if S is None:
        raise InputError("S", None, f"Case {case} needs the number of active clients per round")
    return int(N) / integer("S", S, low=1, high=N, high_name="N")


def _logarithm(case: int, N: int, T: int, delta: float | None) -> float:
    """The logarithmic factor of the delay lemma: ln NT in Case 1, max{ln NT, ln 1/delta} in Case 2, else 1."""
    NT = int(N) * integer("T", T, low=1)
    if case == 1:
        return math.log(NT)
    if case == 2 and delta is not None:
        return max(math.log(NT), math.log(1 / delta))
    return 1.0


def _check(**arguments: float) -> None:
    for name, value in arguments.items():
        if name in ("N", "K", "T"):
            integer(name, value, low=1)
        elif name == "L":
            real(name, value, above=0)
        else:
            real(name, value, low=0)
