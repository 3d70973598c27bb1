"""Input checks. Bad input raises an InputError of one line: the field, the value and what is accepted."""

import difflib
import math
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class InputError(ValueError):
    """A value from the caller is not accepted. The message is one line that can be shown to the user unchanged.

    >>> import fedsum
    >>> fedsum.Uniform(10, 20)
    Traceback (most recent call last):
    ...
    fedsum.base.checks.InputError: size = 20: a whole number from 1 to 10 (n)
    """

    def __init__(self, field: str, value: object, accepted: str) -> None:
        super().__init__(f"{field} = {short(value)}: {accepted}")
        self.field = field
        self.value = value
        self.accepted = accepted


@contextmanager
def settings_of(part: str, names: Mapping[str, str]) -> Iterator[None]:
    """Within this block, errors name the settings of a part: with {"n": "clients"}, `n` of a task is `task.clients`."""
    try:
        yield
    except InputError as error:
        # A field may be `p[3]` or `p of shape`.
        head, rest = re.fullmatch(r"(\w*)(.*)", error.field, re.DOTALL).groups()  # type: ignore[union-attr]
        if head not in names:
            raise
        raise InputError(f"{part}.{names[head]}{rest}", error.value, error.accepted) from error


def short(value: object) -> str:
    """The repr of `value` on one line, cut to 80 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:77] + "..."


def nearest(name: str, accepted: Iterable[str]) -> str:
    """The end of an error message on an unknown name: the nearest accepted name, and all accepted names.

    >>> nearest("unifrom", ["uniform", "cyclic"])
    "did you mean 'uniform'? known: cyclic, uniform"
    """
    names = sorted(accepted)
    if not names:
        return "no names to choose from"
    by_lower = {accepted_name.lower(): accepted_name for accepted_name in names}
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.5)
    hint = f"did you mean {by_lower[close[0]]!r}? " if close else ""
    # A name such as "FedSUM, local_steps=10" has commas of its own.
    separator = "; " if any("," in accepted_name for accepted_name in names) else ", "
    return f"{hint}known: {separator.join(names)}"


def choice(field: str, name: Any, choices: Mapping[str, T]) -> T:
    """The choice of that name."""
    if not isinstance(name, str) or name not in choices:
        raise InputError(field, name, nearest(str(name), choices))
    return choices[name]


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
    """A probability in (0, 1]; `zero=True` also accepts 0, `one=False` rejects 1."""
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


def set_fields(record: object, **checked: object) -> None:
    """Sets fields of a frozen dataclass to checked values, as Python numbers, because NumPy integers overflow."""
    for name, value in checked.items():
        object.__setattr__(record, name, value)
