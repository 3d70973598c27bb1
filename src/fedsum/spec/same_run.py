"""Whether two settings describe the same run."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..algorithms import ALGORITHMS
from ..base.toml_values import DIGEST, Table, sha256
from ..training import OPTIONS, RESULT_NEUTRAL, rate_values
from .task_fingerprint import MEASURED

_SIX_DIGITS = 1.01e-5
"""relative tolerance: one unit in the last of six digits, since two machines may round a value differently"""


def first_difference(before: Table, now: Table, free: Sequence[str] = ()) -> tuple[str, Any, Any] | None:
    """The first setting that changes the result and differs: its name and both values.

    Settings in `free` may differ: names of tables, or of settings in a table, such as `deployment.deadline`. If
    `rounds` may differ, a function of the round is compared over the rounds of the shorter run.

    Rates are compared by their values over the run's rounds. The outputs of a task's functions are compared to six
    digits. The path of a trace may differ if its content is the same. An option, or a field of an algorithm, that was
    added after the run began has its default.
    """
    compared = ({key: value for key, value in table.items() if key not in _IGNORED} for table in (before, now))
    one, other = (_flat(_with_defaults(table)) for table in compared)
    for table in ("schedule", "schedule.availability"):
        if f"{table}.{DIGEST}" in one and f"{table}.{DIGEST}" in other:
            one[f"{table}.path"] = other[f"{table}.path"] = ""
    for key in [*other, *one]:
        if key in free or key.partition(".")[0] in free:
            continue
        before_value, value = one.get(key), other.get(key)
        if "rounds" in free and key.endswith(".values") and isinstance(before_value, list) and isinstance(value, list):
            shorter = min(len(before_value), len(value))
            before_value, value = before_value[:shorter], value[:shorter]
        if not _same(key, before_value, value):
            return key, before_value, value
    if "eta_l" in before and "eta_l" in now:
        return _rate_difference(before["eta_l"], now["eta_l"], min(before["rounds"], now["rounds"]))
    return None


_IGNORED = (*RESULT_NEUTRAL, "environment", "metrics", "eta_l")
"""settings and tables that change no result, and eta_l, which is compared by its values"""


def _same(key: str, one: Any, other: Any) -> bool:
    if one == other:
        return True
    if key not in _MEASURED_KEYS or one is None or other is None:
        return False
    before, now = (value if isinstance(value, list) else [value] for value in (one, other))
    # A mean may cancel to rounding errors, so the tolerance is relative to the largest number, the root mean square.
    noise = _SIX_DIGITS * max((abs(value) for value in before if math.isfinite(value)), default=0.0)
    return len(before) == len(now) and all(
        math.isclose(a, b, rel_tol=_SIX_DIGITS, abs_tol=noise if len(before) > 1 else 0.0)
        or (math.isnan(a) and math.isnan(b))
        for a, b in zip(before, now, strict=True)
    )


_MEASURED_KEYS = tuple(f"task.{name}" for name in MEASURED)


def _rate_difference(before: Any, now: Any, rounds: int) -> tuple[str, Any, Any] | None:
    """The first round in which two rates differ, and its values."""
    if before == now:
        return None
    if any(isinstance(rate, Mapping) and DIGEST in rate for rate in (before, now)):
        one, other = (_rate_digest(rate, rounds) for rate in (before, now))
        return None if one == other else ("eta_l", one, other)
    for t, rates in enumerate(zip(rate_values(before, rounds), rate_values(now, rounds), strict=True)):
        if rates[0] != rates[1]:
            return f"eta_l({t})", *rates
    return None


def _with_defaults(table: Table) -> Table:
    """The settings with the defaults of options, and of the algorithm's fields if the algorithm is fedsum's own."""
    options = {option.name: option.default for option in OPTIONS if option.name not in _IGNORED}
    known: Table = {key: value for key, value in options.items() if isinstance(value, bool | int | float | str)}
    table = known | table
    algorithm = table.get("algorithm")
    if not isinstance(algorithm, Mapping):
        return table
    algorithm = _with_defaults(dict(algorithm))  # that of a ServerOpt is in its own table
    name = algorithm.get("name")
    if name not in ALGORITHMS:
        return {**table, "algorithm": algorithm}
    fields = {field.name: field.default for field in dataclasses.fields(ALGORITHMS[name])}  # type: ignore[arg-type]
    # TOML has no None: a field that is None is left out of the settings.
    defaults = {key: value for key, value in fields.items() if isinstance(value, bool | int | float | str)}
    return {**table, "algorithm": {"name": name} | defaults | dict(algorithm)}


def _rate_digest(rate: Any, rounds: int) -> str:
    if isinstance(rate, Mapping) and DIGEST in rate:
        return str(rate[DIGEST])
    return sha256(rate_values(rate, rounds))


def _flat(table: Mapping[str, Any], prefix: str = "") -> Table:
    flat: Table = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
