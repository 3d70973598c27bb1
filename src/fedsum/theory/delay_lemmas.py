"""The delay lemmas (lem:case1 to lem:case4), and their corollary (cor:cases)."""

import math

from ..base.checks import InputError, integer, probability
from .inputs import check_constants


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
    check_constants(L=L, sigma=sigma, N=N, K=K, T=T, Delta_f=Delta_f, F_0=F_0)
    interval, log = _interval(case, N, S, delta), _logarithm(case, N, T, delta)
    noise = 60 * math.sqrt(L * sigma**2 * Delta_f * log * interval) / math.sqrt(N * K * T)
    return noise + 80 * (L * Delta_f + F_0) * interval * log / T


def _interval(case: int, N: int, S: int | None, delta: float | None) -> float:
    """A bound on the mean number of rounds from one active round of a client to the next: N/S, or 1/delta."""
    integer("case", case, low=1, high=4)
    integer("N", N, low=1)
    if case == 2:
        if delta is None:
            raise InputError("delta", None, "Case 2 needs the smallest probability that a client is active, in (0, 1]")
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
