"""Checks of the constants that the formulas take."""

from ..base.checks import InputError, integer, nearest, real
from ..base.registry import registered

FAMILY = ("FedSUM-B", "FedSUM", "FedSUM-CR")
"""the algorithms that the paper analyses, by label"""


def check_constants(**constants: float) -> None:
    for name, value in constants.items():
        if name in ("N", "K", "T"):
            integer(name, value, low=1)
        elif name in ("L", "eta_l", "eta_g"):
            real(name, value, above=0)
        else:
            real(name, value, low=0)


def family_label(field: str, name: str) -> str:
    """The label of an algorithm of the family. Letter case, hyphens and underscores do not matter.

    >>> family_label("algorithm", "fedsumcr")
    'FedSUM-CR'
    """
    label = registered(dict.fromkeys(FAMILY), name) if isinstance(name, str) else None
    if label is None:
        raise InputError(field, name, nearest(str(name), FAMILY))
    return label
