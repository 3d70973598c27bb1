"""The facets of a run (its task, pattern, algorithm and setting, as labels).

Labels are as short as possible: a label shows an option only if the option differs between runs whose labels would
otherwise be equal. `Independent` becomes `Independent p=0.05` only in a sweep that varies p.
"""

import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..algorithms import ALGORITHMS
from ..figures import PAPER_ALGORITHMS
from ..runs import Run
from ..spec import display_label

NAMES = {
    **{name: algorithm.label for name, algorithm in ALGORITHMS.items()},
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "svhn": "SVHN",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "sst2": "SST-2",
    "Uniform": "Uniform (P1)",
    "Independent": "Independent (P2)",
    "Sine": "Sine (P3)",
    "Cyclic": "Cyclic (Case 3)",
    "Reshuffled": "Reshuffled (Case 4)",
}
"""how figures and tables name algorithms, data sets and schedules"""
_PAPER_ORDER = {
    "task": tuple(NAMES[name] for name in ("mnist", "cifar10", "svhn")),
    "schedule": tuple(NAMES[name] for name in ("Uniform", "Independent", "Sine", "Cyclic", "Reshuffled")),
    "algorithm": PAPER_ALGORITHMS,
}
# Options that may differ between the runs of one curve.
_IGNORED = ("seed", "eval_every", "eval_last", "deterministic")

# Options that a label shows in words instead of as `option=value`.
_PHRASES = {"buffer": "({} at a time)"}

# Options whose value may be a table.
_OPTION_TABLES = ("eta_l", "devices")


@dataclass(frozen=True)
class Facets:
    """The labels that identify a curve. Runs with equal facets differ only in their seed."""

    task: str
    schedule: str
    algorithm: str
    setting: str
    """other options that differ between curves, such as `batch_size=8`; may be empty"""


FACETS = tuple(field.name for field in fields(Facets))


def facets(runs: Sequence[Run], rename: Mapping[str, str] | None = None) -> list[Facets]:
    """The facets of each run, in the order of `runs`; `rename` replaces labels."""
    tasks = _labels(runs, "task", [()] * len(runs))
    schedules = _labels(runs, "schedule", tasks)
    algorithms = _labels(runs, "algorithm", list(zip(tasks, schedules, strict=True)))
    other_options = [
        _flat({k: v for k, v in run.config.items() if not isinstance(v, dict) or k in _OPTION_TABLES}) for run in runs
    ]
    shown_options = _differing(zip(tasks, schedules, algorithms, strict=True), other_options)
    settings = [_label("", options, shown_options) for options in other_options]
    renamed = rename or {}
    return [
        Facets(*(renamed.get(label, label) for label in labels))
        for labels in zip(tasks, schedules, algorithms, settings, strict=True)
    ]


def all_seeds(run: Run) -> tuple[int, int, int]:
    """The seeds of a run, of its task and of its schedule; 0 for a part without one."""
    own, task, schedule = (table.get("seed") for table in (run.config, run.config["task"], run.config["schedule"]))
    return tuple(seed if isinstance(seed, int) else 0 for seed in (own, task, schedule))  # type: ignore[return-value]


def values(curves: Iterable[Facets], name: str) -> list[str]:
    """The distinct values of the facet `name`: the paper's values first, in the paper's order; numbers by size."""
    first = _PAPER_ORDER.get(name, ())
    distinct = {getattr(curve, name) for curve in curves}
    return sorted(distinct, key=lambda label: (first.index(label) if label in first else len(first), _by_size(label)))


def ordered(curves: Iterable[Facets]) -> list[Facets]:
    """The distinct curves, sorted by task, then pattern, algorithm and setting."""
    distinct = set(curves)
    order = {name: values(distinct, name) for name in FACETS}
    return sorted(distinct, key=lambda curve: [order[name].index(getattr(curve, name)) for name in FACETS])


def compared(curves: Iterable[Facets]) -> str:
    """The facet to draw as the curves of one panel: the first of algorithm, schedule and setting that varies."""
    curves = list(curves)
    return next((name for name in ("algorithm", "schedule", "setting") if len(values(curves, name)) > 1), "algorithm")


def _labels(runs: Sequence[Run], table: str, groups: Sequence[Hashable]) -> list[str]:
    """Each run's label for `table`, a table of its config, with the options that differ within a group of runs."""
    options = [_flat({k: v for k, v in run.config[table].items() if k != "name"}) for run in runs]
    # A wrapper's name alone would not say which algorithm it wraps.
    names = [
        display_label(table, run.config[table]) if table in run.config[table] else run.config[table]["name"]
        for run in runs
    ]
    shown_options = _differing(zip(groups, names, strict=True), options)
    return [_label(name, run_options, shown_options) for name, run_options in zip(names, options, strict=True)]


def _label(name: str, options: Mapping[str, str], shown_options: set[str]) -> str:
    shown = [key for key in options if key in shown_options]
    assignments = [_PHRASES.get(key, key + "={}").format(options[key]) for key in shown]
    # A user's function, "package.module:its_name", is shown as "its name".
    own_name = name.rpartition(":")[2]
    label = NAMES.get(own_name) or own_name.replace("_", " ")
    # With other numbers, a pattern is not the paper's P1, P2 or P3.
    head = label if not assignments else label.split(" (")[0]
    return " ".join(filter(None, (head, ", ".join(assignments))))


def _differing(groups: Iterable[Hashable], options: Sequence[Mapping[str, str]]) -> set[str]:
    """The options that take several values within a group. `groups` and `options` have one entry per run."""
    members: dict[Hashable, list[Mapping[str, str]]] = defaultdict(list)
    for group, run_options in zip(groups, options, strict=True):
        members[group].append(run_options)
    return {
        key
        for group_options in members.values()
        for key in set().union(*group_options) - set(_IGNORED)
        if len({run_options.get(key) for run_options in group_options}) > 1
    }


def _flat(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as text. A nested table, such as that of a learning rate, becomes its name and its fields."""
    flat: dict[str, str] = {}
    for key, value in options.items():
        if isinstance(value, dict):
            flat |= {key: str(value.get("name", ""))} | _flat({k: v for k, v in value.items() if k != "name"})
        else:
            flat[key] = _text(value)
    return flat


def _text(value: Any) -> str:
    if isinstance(value, list) and len(value) > 3:
        # The checksum distinguishes long lists.
        return f"[{len(value)} values, {zlib.crc32(repr(value).encode()):08x}]"
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _by_size(label: str) -> tuple[tuple[float, str], ...]:
    """A sort key that puts p=0.05 before p=0.5 and batch_size=16 before batch_size=128."""

    def part(word: str) -> tuple[float, str]:
        head, _, number = word.rpartition("=")
        try:
            return float(number.strip("(,)")), head
        except ValueError:
            return float("-inf"), word

    return tuple(part(word) for word in label.split(" "))
