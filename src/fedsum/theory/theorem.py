"""Theorem 1 (thm-fedsum:convergence) and FedSUM-B's own theorem (thm-fedsum-a:convergence)."""

import math
from typing import NamedTuple

from .inputs import check_constants, family_label

_STATED = 30.0
# The proofs end with smaller constants, and then scale them up: 2 + 10 in thm-fedsum-a:convergence-2, and 2 + 9 + 15
# in the last equations of the proofs of thm-fedsum-b and thm-FedSUM.
_PROVED = {"FedSUM-B": 12.0, "FedSUM": 26.0, "FedSUM-CR": 26.0}


class Rates(NamedTuple):
    """A local and a global learning rate.

    >>> import fedsum
    >>> eta_l, eta_g = Rates(eta_l=0.01, eta_g=2.0)
    >>> eta_l * eta_g
    0.02
    """

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
    check_constants(L=L, sigma=sigma, N=N, K=K, T=T, Delta_f=Delta_f, tau_max=tau_max, tau_avg=tau_avg)
    tau_max = max(1.0, tau_max)
    eta_l = 1 / (10 * math.sqrt(tau_max) * K * L)
    # Delta_f = 0 means that x0 is optimal. The second term would then be 0, a useless rate.
    if sigma > 0 and Delta_f > 0:
        eta_l = min(eta_l, math.sqrt(N * tau_max * Delta_f) / math.sqrt(max(1, tau_avg) * K * T * L * sigma**2))
    return Rates(eta_l=eta_l, eta_g=1 / math.sqrt(tau_max))


def fedsum_b_rates(
    *,
    eta_g: float = 1.0,
    L: float,
    sigma: float,
    N: int,
    K: int,
    T: int,
    Delta_f: float,
    tau_max: float,
    tau_avg: float,
) -> Rates:
    """Learning rates of FedSUM-B's own theorem (Theorem C.1 of the paper), which fixes only their product.

    eta_g eta_l = min{ sqrt(N Delta_f) / sqrt(max{1, tau_avg} K T L sigma^2), 1/(10 K tau_max L) }, which is the
    product of Theorem 1's rates. FedSUM-B takes no local steps, so its iterates depend on the product alone. The
    theorem's bound is `bound`; with `proof="FedSUM-B"` it has the smaller constant of the proof.

    >>> fedsum_b_rates(L=1, sigma=0, N=100, K=10, T=2000, Delta_f=1, tau_max=25, tau_avg=16)
    Rates(eta_l=0.0004, eta_g=1.0)
    """
    check_constants(eta_g=eta_g)
    rates = learning_rates(L=L, sigma=sigma, N=N, K=K, T=T, Delta_f=Delta_f, tau_max=tau_max, tau_avg=tau_avg)
    return Rates(eta_l=rates.eta_l * rates.eta_g / eta_g, eta_g=float(eta_g))


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
    proof: str | None = None,
) -> float:
    """Theorem 1's bound on (1/T) sum_t E||grad f(x^(t))||^2, for the theorem's learning rates.

    30 sqrt(max{1, tau_avg} L sigma^2 Delta_f) / sqrt(N K T) + 20 tau_max (L Delta_f + F_0) / T

    With `proof`, the name of an algorithm of the family, 30 is replaced by the constant that the algorithm's proof
    ends with: 12 for FedSUM-B, 26 for FedSUM and FedSUM-CR.

    >>> bound(L=1, sigma=0, N=100, K=10, T=2000, Delta_f=1, F_0=1, tau_max=25, tau_avg=16)
    0.5
    """
    check_constants(L=L, sigma=sigma, N=N, K=K, T=T, Delta_f=Delta_f, F_0=F_0, tau_max=tau_max, tau_avg=tau_avg)
    constant = _STATED if proof is None else _PROVED[family_label("proof", proof)]
    noise = constant * math.sqrt(max(1, tau_avg) * L * sigma**2 * Delta_f) / math.sqrt(N * K * T)
    return noise + 20 * max(1.0, tau_max) * (L * Delta_f + F_0) / T
