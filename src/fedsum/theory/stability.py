"""FedSUM's stability limit for any participation. Not in the paper; docs/theory.md has the derivation."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..base.checks import InputError, integer

_ANGLES = 4000
"""points of the unit circle at which a stability limit is searched"""
_STEPS, _STEPS_PER_HALVING = 25, 3
"""steps that are tried on a record, and their spacing"""
_BELOW = 0.9
"""the largest of them, as a share of the limit: at the limit itself x neither shrinks nor grows"""
_ROUNDS = 1000
"""rounds of a record that is repeated"""


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


def recorded_limit(
    sets: Sequence[NDArray[np.int64]], n: int, *, K: int, limit: float, follows_sum: bool = True
) -> float:
    """The largest step size, at most `limit`, up to which FedSUM is stable in the rounds of a trace.

    `stability_limit` takes the ages of gradients as independent of the round. In a trace with a daily cycle they are
    not, and FedSUM may be unstable far below that limit. Here FedSUM is simulated through the rounds of the trace, on
    the same quadratic loss for all clients, at several step sizes. A short trace is repeated.

    Args:
      sets: the active clients of each round.
      n: N, the number of clients.
      K: local steps.
      limit: the largest step to try, from `stability_limit`.
      follows_sum: as in `stability_limit`.

    >>> alternating = [np.array([0]), np.array([1])]
    >>> ages = [0.5, 0.5]
    >>> limit = stability_limit(ages, K=1)
    >>> recorded_limit(alternating, 2, K=1, limit=limit) == limit
    True
    """
    if not math.isfinite(limit) or not len(sets):
        return limit
    steps = _BELOW * limit * 2.0 ** (-np.arange(_STEPS) / _STEPS_PER_HALVING)
    c = (K - 1) / (2 * K) if follows_sum else 0.0
    x, mean, latest = np.ones(_STEPS), np.zeros(_STEPS), np.zeros((n, _STEPS))
    total = max(4, -(-_ROUNDS // len(sets))) * len(sets)
    largest = np.zeros((4, _STEPS))  # of |x|, per quarter of the rounds
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(total):
            active = sets[t % len(sets)]
            gradient = x - c * steps * mean
            mean = mean + (gradient - latest[active]).sum(axis=0) / n
            latest[active] = gradient
            x = x - steps * mean
            quarter = largest[4 * t // total]
            np.fmax(quarter, np.where(np.isfinite(x), np.abs(x), np.inf), out=quarter)
    # Just below the limit |x| shrinks slowly; above it, |x| grows in every quarter.
    stable = (largest[3] < largest[1]) | (largest[3] < 1e-9)
    smaller_are_stable = np.logical_and.accumulate(stable[::-1])[::-1]
    return limit if smaller_are_stable[0] else float(steps[smaller_are_stable].max(initial=steps[-1]))
