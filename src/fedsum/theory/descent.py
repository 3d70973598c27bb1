"""The appendix's descent lemmas: a bound for any learning rates that meet their conditions.

With M = max{1, tau_avg} and tau_max = max{1, tau_max},

    FedSUM-B (Lemma C.6, lem-fedsum-a:descent), if eta_g eta_l K <= 1/(8 tau_max L):
        2 Delta_f / (eta_g eta_l K T) + 10 eta_g eta_l M sigma^2 L / N + 2 tau_max F_0 / T

    FedSUM (Lemma D.6, lem:descent) and FedSUM-CR (Lemma E.6, lem-FedSUM:descent), if
    eta_l <= 1/(10 sqrt(tau_max) K L) and eta_g eta_l <= 1/(10 tau_max K L):
        2 Delta_f / (eta_g eta_l K T) + 9 eta_g eta_l M sigma^2 L / N + 3 tau_max F_0 / T
        + 150 eta_l^2 K sigma^2 L^2 / N
"""

import math
from dataclasses import dataclass

from ..base.checks import InputError
from .inputs import check_constants, family_label
from .theorem import Rates

# Theorem 1's rates lie on the conditions' boundary, and rounding must not put them beyond it.
_ROUNDING = 1 + 1e-9


@dataclass(frozen=True)
class _Lemma:
    """The constants of a descent lemma."""

    noise: float
    """of eta_g eta_l M sigma^2 L / N"""
    start: float
    """of tau_max F_0 / T"""
    drift: float
    """of eta_l^2 K sigma^2 L^2 / N, the noise of the local steps"""
    product: float
    """c in eta_g eta_l <= 1/(c tau_max K L)"""
    local: float | None
    """c in eta_l <= 1/(c sqrt(tau_max) K L); None without that condition"""


_LOCAL_STEPS = _Lemma(noise=9, start=3, drift=150, product=10, local=10)
_LEMMAS = {
    "FedSUM-B": _Lemma(noise=10, start=2, drift=0, product=8, local=None),
    "FedSUM": _LOCAL_STEPS,
    "FedSUM-CR": _LOCAL_STEPS,
}


def bound_at(
    eta_l: float,
    eta_g: float,
    *,
    algorithm: str = "FedSUM",
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
    """The descent lemma's bound on (1/T) sum_t E||grad f(x^(t))||^2, for constant learning rates.

    Args:
      eta_l: local learning rate.
      eta_g: global learning rate.
      algorithm: FedSUM-B, FedSUM or FedSUM-CR.

    The other arguments are the constants of `fedsum.theory`. Learning rates beyond the lemma's conditions are
    refused, with the condition.

    >>> bound_at(0.002, 0.2, L=1, sigma=0, N=100, K=10, T=2000, Delta_f=1, F_0=1, tau_max=25, tau_avg=16)
    0.2875
    """
    constants = {"L": L, "sigma": sigma, "N": N, "K": K, "T": T, "Delta_f": Delta_f}
    check_constants(eta_l=eta_l, eta_g=eta_g, **constants, F_0=F_0, tau_max=tau_max, tau_avg=tau_avg)
    label = family_label("algorithm", algorithm)
    _refuse_beyond(label, eta_l, eta_g, L=L, K=K, tau_max=tau_max)
    lemma, product, tau_max = _LEMMAS[label], eta_g * eta_l, max(1.0, tau_max)
    return (
        2 * Delta_f / (product * K * T)
        + lemma.noise * product * max(1, tau_avg) * sigma**2 * L / N
        + lemma.start * tau_max * F_0 / T
        + lemma.drift * eta_l**2 * K * sigma**2 * L**2 / N
    )


def largest_eta_l(eta_g: float, *, algorithm: str = "FedSUM", L: float, K: int, tau_max: float) -> float:
    """The largest eta_l that meets the conditions of the algorithm's descent lemma.

    >>> largest_eta_l(1, L=1, K=10, tau_max=25), largest_eta_l(1, algorithm="FedSUM-B", L=1, K=10, tau_max=25)
    (0.0004, 0.0005)
    """
    check_constants(eta_g=eta_g, L=L, K=K, tau_max=tau_max)
    local, product = _limits(family_label("algorithm", algorithm), L=L, K=K, tau_max=tau_max)
    return min(local, product / eta_g)


def best_rates(
    *,
    eta_g: float | None = None,
    algorithm: str = "FedSUM",
    L: float,
    sigma: float,
    N: int,
    K: int,
    T: int,
    Delta_f: float,
    tau_max: float,
    tau_avg: float,
) -> Rates:
    """The eta_l with the smallest `bound_at`, for a given eta_g; by default Theorem 1's, 1/sqrt(tau_max).

    eta_g has to be given because no eta_g is best: for the same product eta_g eta_l, a larger eta_g never increases
    the bound. F_0 does not matter, because its term does not depend on the rates.

    >>> best_rates(L=1, sigma=30, N=100, K=10, T=2000, Delta_f=1, tau_max=25, tau_avg=16)  # doctest: +ELLIPSIS
    Rates(eta_l=0.00130..., eta_g=0.2)
    """
    check_constants(L=L, sigma=sigma, N=N, K=K, T=T, Delta_f=Delta_f, tau_max=tau_max, tau_avg=tau_avg)
    eta_g = 1 / math.sqrt(max(1.0, tau_max)) if eta_g is None else float(eta_g)
    label = family_label("algorithm", algorithm)
    eta_l = largest_eta_l(eta_g, algorithm=label, L=L, K=K, tau_max=tau_max)
    # Delta_f = 0 means that x0 is optimal. The bound would then be smallest at 0, a useless rate.
    if Delta_f > 0:
        lemma = _LEMMAS[label]
        descent = 2 * Delta_f / (eta_g * K * T)
        noise = lemma.noise * eta_g * max(1, tau_avg) * sigma**2 * L / N
        drift = lemma.drift * K * sigma**2 * L**2 / N
        eta_l = _minimiser(descent, noise, drift, eta_l)
    return Rates(eta_l=eta_l, eta_g=eta_g)


def _minimiser(a: float, b: float, c: float, limit: float) -> float:
    """The minimiser of a/x + b x + c x^2 over 0 < x <= limit: the root of 2 c x^3 + b x^2 - a, if it is that small."""
    x = limit
    while True:
        # The polynomial is convex and increasing. Right of its root, Newton's steps go down to the root.
        excess = 2 * c * x**3 + b * x**2 - a
        smaller = x - excess / (6 * c * x**2 + 2 * b * x) if excess > 0 else x
        if not smaller < x:
            return x
        x = smaller


def _limits(label: str, *, L: float, K: int, tau_max: float) -> tuple[float, float]:
    """The largest eta_l and the largest eta_g eta_l that the lemma's conditions permit."""
    lemma, tau_max = _LEMMAS[label], max(1.0, tau_max)
    local = math.inf if lemma.local is None else 1 / (lemma.local * math.sqrt(tau_max) * K * L)
    return local, 1 / (lemma.product * tau_max * K * L)


def _refuse_beyond(label: str, eta_l: float, eta_g: float, *, L: float, K: int, tau_max: float) -> None:
    lemma, (local, product) = _LEMMAS[label], _limits(label, L=L, K=K, tau_max=tau_max)
    if eta_l > local * _ROUNDING:
        condition = f"{label}'s descent lemma needs eta_l <= 1/({lemma.local:g} sqrt(tau_max) K L) = {local:.4g}"
        raise InputError("eta_l", eta_l, condition)
    if eta_g * eta_l > product * _ROUNDING:
        condition = f"{label}'s descent lemma needs eta_g eta_l <= 1/({lemma.product:g} tau_max K L) = {product:.4g}"
        raise InputError("eta_g eta_l", eta_g * eta_l, condition)
