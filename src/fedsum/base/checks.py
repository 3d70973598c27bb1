"""Bad input is refused at the door, in one line: the field, the value, and what would be accepted."""

import difflib
import math
import operator
from collections.abc import Iterable
from typing import Any


class InputError(ValueError):
    """Something the caller gave cannot be used; the message is one line, fit to be shown as it is."""

    def __init__(self, field: str, value: object, accepted: str) -> None:
        super().__init__(f"{field} = {short(value)}: {accepted}")
        self.field = field
        self.value = value
        self.accepted = accepted


def short(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:77] + "..."


def nearest(name: str, known: Iterable[str]) -> str:
    """What to say after an unknown name: the nearest match, and all there is.

    >>> nearest("unifrom", ["uniform", "cyclic"])
    "did you mean 'uniform'? known: cyclic, uniform"
    """
    names = sorted(known)
    if not names:
        return "there is none"
    lower = {k.lower(): k for k in names}
    close = difflib.get_close_matches(name.lower(), list(lower), n=1, cutoff=0.5)
    hint = f"did you mean {lower[close[0]]!r}? " if close else ""
    return f"{hint}known: {', '.join(names)}"


def integer(field: str, value: Any, *, low: int, high: int | None = None, high_name: str = "") -> int:
    accepted = f"a whole number from {low} up" if high is None else f"a whole number from {low} to {high}"
    if high_name:
        accepted += f" ({high_name})"
    if isinstance(value, bool):
        raise InputError(field, value, accepted)
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(field, value, accepted) from None
    if number < low or (high is not None and number > high):
        raise InputError(field, value, accepted)
    return number


def real(field: str, value: Any, *, above: float | None = None, low: float | None = None) -> float:
    """A finite number, greater than `above` or at least `low`."""
    accepted = "a finite number"
    if above is not None:
        accepted += f" greater than {above:g}"
    if low is not None:
        accepted += f", at least {low:g}"
    number = _float(field, value, accepted)
    if (
        not math.isfinite(number)
        or (above is not None and not number > above)
        or (low is not None and not number >= low)
    ):
        raise InputError(field, value, accepted)
    return number


def probability(field: str, value: Any, *, zero: bool = False, one: bool = True) -> float:
    """A probability in (0, 1]; `zero` admits 0 too, `one=False` leaves 1 out."""
    accepted = f"a probability in {'[' if zero else '('}0, 1{']' if one else ')'}"
    number = _float(field, value, accepted)
    if not (0 < number < 1 or (zero and number == 0) or (one and number == 1)):
        raise InputError(field, value, accepted)
    return number


def _float(field: str, value: Any, accepted: str) -> float:
    try:
        if isinstance(value, str | bytes | bool):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(field, value, accepted) from None


def seed(value: Any) -> int:
    return integer("seed", value, low=0, high=2**64 - 1)


def keep(record: object, **checked: object) -> None:
    """Puts checked values back into a frozen record, in plain Python types: numpy's overflow."""
    for name, value in checked.items():
        object.__setattr__(record, name, value)
