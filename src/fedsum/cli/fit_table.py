"""The output of `fedsum delays --fit`: generators that resemble a record, ready to paste."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from rich.table import Table

from ..participation import Diurnal, Fit, Markov, delays
from .console import out


def _numbers(generator: Markov | Diurnal) -> dict[str, float]:
    """The generator's fields, to four digits."""
    values = {field.name: getattr(generator, field.name) for field in fields(generator) if field.init}
    return {name: value if isinstance(value, int) else _rounded(value) for name, value in values.items()}


def _rounded(value: float) -> float:
    """To four digits; a probability near 1 to four digits of its complement, so that it stays below 1."""
    near_one = 0.9 < value < 1
    return round(1 - float(f"{1 - value:.4g}"), 12) if near_one else float(f"{value:.4g}")


def _python(generator: Markov | Diurnal) -> str:
    n, *others = (f"{name}={value}" for name, value in _numbers(generator).items())
    return f"fedsum.{type(generator).__name__}({', '.join([n.removeprefix('n='), *others])})"


def fits_as_json(fits: Sequence[Fit]) -> dict[str, Any]:
    if not fits:
        return {}
    entries = [{"name": type(one.generator).__name__, **_numbers(one.generator), "nats": one.nats} for one in fits]
    return {"fit": entries}


def print_fits(fits: Sequence[Fit], recorded: Mapping[str, Any], rounds: int, seed: int) -> None:
    """A table with the record and the fitted generators over as many rounds, then the likeliest one to paste."""
    table = Table(title="Fitted generators, the likeliest first")
    table.caption = "nats: negative log-likelihood per client and round"
    for head in ("", "nats", "active per round", "tau_max", "tau_avg", "never active"):
        table.add_column(head, justify="left" if not head else "right")
    measured = [str(recorded["tau_max"]), f"{recorded['tau_avg']:.4g}", str(recorded["never_seen"])]
    table.add_row("this record", "", f"{recorded['active_mean']:.1f}", *measured)
    for one in fits:
        generated = delays(one.generator, rounds, seed)
        measured = [str(generated.max), f"{generated.avg:.4g}", str(int((generated.counts == 0).sum()))]
        mean = f"{generated.counts.sum() / rounds:.1f}"
        table.add_row(type(one.generator).__name__, f"{one.nats:.4f}", mean, *measured)
    out.print(table)
    likeliest = fits[0].generator
    values = ", ".join(f"{name} = {value}" for name, value in _numbers(likeliest).items())
    # One line each, so that they can be copied.
    out.print(f"Python: {_python(likeliest)}", soft_wrap=True, highlight=False, markup=False)
    setting = f'schedule = {{name = "{type(likeliest).__name__}", {values}}}'
    out.print(f"settings file: {setting}", soft_wrap=True, highlight=False, markup=False)
