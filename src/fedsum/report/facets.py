"""What a run is called beside the others: its task, pattern, algorithm and setting, and how its curve looks.

Names are as short as the runs allow: a field is told only where it differs between runs that would else be called
the same, so `Independent` becomes `Independent p=0.05` in the sweep that varies p, and nowhere else.
"""

import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..algorithms import ALGORITHMS
from ..figures import COLOURS
from ..runs import Run

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
_ALGORITHMS = ("FedSUM", "FedSUM-CR", "FedSUM-B", "SCAFFOLD", "FedAvg", "FedAU", "FedAWE", "FedVARP", "MIFA")
_FIRST = {
    "task": tuple(NAMES[name] for name in ("mnist", "cifar10", "svhn")),
    "schedule": tuple(NAMES[name] for name in ("Uniform", "Independent", "Sine", "Cyclic", "Reshuffled")),
    "algorithm": _ALGORITHMS,
}
# What differs between runs without making them different things to compare.
_ASIDE = ("seed", "eval_every", "eval_last", "deterministic")

# Each colour has a dash of its own, in points drawn and left out, so that print and any kind of sight tell curves
# apart; the family's lie on each other, so that theirs differ most.
DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (6, 2),
    (1.5, 1.5),
    (7, 2, 1.5, 2),
    (),
    (3.5, 1.5),
    (8, 2, 1.5, 2, 1.5, 2),
    (10, 3),
    (2.5, 2.5),
)
# The order to draw in: the paper's own algorithms over the others, and broken lines over whole ones, which would
# hide them where curves agree.
LAYERS = tuple(sorted(range(len(DASHES)), key=lambda place: (place < 3, bool(DASHES[place]), place)))


@dataclass(frozen=True)
class Facets:
    """What tells a curve from the others; runs with equal facets differ by their seed."""

    task: str
    schedule: str
    algorithm: str
    setting: str
    """other options that differ, such as `batch_size=8`; empty if none does"""


FACETS = tuple(field.name for field in fields(Facets))


def facets(runs: Sequence[Run]) -> list[Facets]:
    """One for each run, in their order."""
    tasks = _labels(runs, "task", [()] * len(runs))
    schedules = _labels(runs, "schedule", tasks)
    algorithms = _labels(runs, "algorithm", list(zip(tasks, schedules, strict=True)))
    rest = [_flat({k: v for k, v in run.config.items() if not isinstance(v, dict) or k == "eta_l"}) for run in runs]
    told = _differing(zip(tasks, schedules, algorithms, strict=True), rest)
    settings = [_told("", options, told) for options in rest]
    return [Facets(*each) for each in zip(tasks, schedules, algorithms, settings, strict=True)]


def values(all_facets: Iterable[Facets], name: str) -> list[str]:
    """The distinct values of a facet, the paper's first and in its order, numbers by size."""
    first = _FIRST.get(name, ())
    distinct = {getattr(each, name) for each in all_facets}
    return sorted(distinct, key=lambda label: (first.index(label) if label in first else len(first), _by_size(label)))


def ordered(all_facets: Iterable[Facets]) -> list[Facets]:
    """The distinct ones, by task, then pattern, algorithm and setting."""
    known = set(all_facets)
    order = {name: values(known, name) for name in FACETS}
    return sorted(known, key=lambda each: [order[name].index(getattr(each, name)) for name in FACETS])


def compared(all_facets: Iterable[Facets]) -> str:
    """The facet whose values are best drawn as curves of one panel: the first that varies."""
    known = list(all_facets)
    return next((name for name in ("algorithm", "schedule", "setting") if len(values(known, name)) > 1), "algorithm")


def styles(labels: Sequence[str], name: str) -> dict[str, int]:
    """The place of each label in COLOURS and DASHES: an algorithm's is the same on every page."""
    taken = {label: _ALGORITHMS.index(label) for label in labels if name == "algorithm" and label in _ALGORITHMS}
    free = [place for place in range(len(COLOURS)) if place not in taken.values()] or list(range(len(COLOURS)))
    others = [label for label in labels if label not in taken]
    return taken | {label: free[number % len(free)] for number, label in enumerate(others)}


def _labels(runs: Sequence[Run], table: str, groups: Sequence[Hashable]) -> list[str]:
    options = [_flat({k: v for k, v in run.config[table].items() if k != "name"}) for run in runs]
    names = [run.config[table]["name"] for run in runs]
    told = _differing(zip(groups, names, strict=True), options)
    return [_told(name, each, told) for name, each in zip(names, options, strict=True)]


def _told(name: str, options: Mapping[str, str], told: set[str]) -> str:
    said = [f"{key}={options[key]}" for key in options if key in told]
    # A function of the user's, "package.module:its_name", is called by the last part alone.
    known = NAMES.get(name) or name.rpartition(":")[2].replace("_", " ")
    # With its own numbers a pattern is no longer the paper's P1, P2 or P3.
    shown = known if not said else known.split(" (")[0]
    return " ".join(filter(None, (shown, ", ".join(said))))


def _differing(groups: Iterable[Hashable], options: Sequence[Mapping[str, str]]) -> set[str]:
    """The options that take several values within a group."""
    members: dict[Hashable, list[Mapping[str, str]]] = defaultdict(list)
    for group, each in zip(groups, options, strict=True):
        members[group].append(each)
    return {
        key
        for group in members.values()
        for key in set().union(*group) - set(_ASIDE)
        if len({each.get(key) for each in group}) > 1
    }


def _flat(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as text; a table of its own, like a learning rate's, gives its name and its fields."""
    flat: dict[str, str] = {}
    for key, value in options.items():
        if isinstance(value, dict):
            flat |= {key: str(value.get("name", ""))} | _flat({k: v for k, v in value.items() if k != "name"})
        else:
            flat[key] = _text(value)
    return flat


def _text(value: Any) -> str:
    if isinstance(value, list) and len(value) > 3:
        # Long lists are told apart by a short mark.
        return f"[{len(value)} values, {zlib.crc32(repr(value).encode()):08x}]"
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _by_size(label: str) -> tuple[tuple[float, str], ...]:
    """Sorts p=0.05 before p=0.5 and batch_size=16 before batch_size=128."""

    def part(word: str) -> tuple[float, str]:
        head, _, number = word.rpartition("=")
        try:
            return float(number.rstrip(",")), head
        except ValueError:
            return float("-inf"), word

    return tuple(part(word) for word in label.split(" "))
