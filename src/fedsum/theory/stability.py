"""FedSUM's stability limit for any participation. Not in the paper; docs/theory.md has the derivation."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..base.checks import InputError, integer

_ANGLES = 4000
"""points of the unit circle at which a stability limit is searched"""


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
