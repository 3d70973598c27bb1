"""The table of facts in docs/algorithms.md, made from the code and from short runs.

python tests/algorithm_facts.py           # prints the table
python tests/algorithm_facts.py --write   # also writes it into docs/algorithms.md
"""

import re
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path

import torch

from fedsum import Biased, Explicit, FedDyn, KnownFedAvg, Observer, simulate
from fedsum.algorithms import ALGORITHMS, card
from fedsum.algorithms.wrapper import Wrapper
from fedsum.tasks import Quadratic

PAGE = Path(__file__).parent.parent / "docs/algorithms.md"
START, END = "<!-- facts: python tests/algorithm_facts.py --write -->\n", "<!-- end of facts -->\n"
N, ROUNDS, LAST = 8, 1000, 300
SCHEDULE = Biased(N, start=0.9, drop=0.12, group=1)
SMALL_STEPS = ("FedAdagrad", "FedYogi", "FedAdam")
"""algorithms whose eta_g is the length of a step per parameter, run with eta_g = 0.01"""


class MeanModel(Observer):
    """The mean of x over the last rounds, in which random fluctuations cancel."""

    def __init__(self):
        self.total = 0

    def round_done(self, run, done):
        if done.round > ROUNDS - LAST:
            self.total = self.total + run.state.server["x"] / LAST


@cache
def measured(name):
    """(distance of the mean model from the optimum under biased participation, whether an empty round moves x)"""
    # FedDyn converges with any alpha; with its default it needs more rounds.
    special = {"KnownFedAvg": KnownFedAvg(p=SCHEDULE.probability()), "FedDyn": FedDyn(alpha=5.0)}
    algorithm = special.get(name) or ALGORITHMS[name]()
    task = Quadratic.random(N, 3, seed=0)
    eta_g = 0.01 if name in SMALL_STEPS else 1.0
    options = {"local_steps": 4, "eta_l": 0.03, "eta_g": eta_g, "dtype": torch.float64, "eval_model": "server"}

    def run(schedule, rounds, observers=()):
        return simulate(task, algorithm, schedule, rounds=rounds, eval_every=rounds, observers=observers, **options)

    mean = MeanModel()
    run(SCHEDULE, ROUNDS, [mean])
    error = float((mean.total - task.optimum).norm())
    one, two = (run(Explicit(N, sets), len(sets)) for sets in ([[0, 3]], [[0, 3], []]))
    return error, not torch.equal(one.x, two.x)


def source(cls):
    """The first citation of the docstring."""
    if cls.__name__.startswith("FedSUM"):
        return "the FedSUM paper"
    return re.search(r"\w+ (?:& \w+|et al\.), \d{4}", " ".join(cls.__doc__.split()))[0]


def lines():
    yield "| | down | up | client state | server memory per client | summable | empty round | bias | source | options |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, cls in ALGORITHMS.items():
        facts, (error, moves) = card(cls()), measured(name)
        options = [f"{f.name}={getattr(cls(), f.name)}" for f in fields(cls)]
        options = [f.name for f in fields(cls)] if issubclass(cls, Wrapper) else options
        cells = [
            f"[`{name}`](algorithms/{name}.md)",
            " ".join(facts.down),
            " ".join(facts.up),
            " ".join(facts.client_state) or "-",
            " ".join(facts.server_memory) or "-",
            "yes" if facts.summable else "no",
            "moves x" if moves else "nothing",
            "exact" if error < 1e-9 else f"{error:.1g}",
            source(cls),
            ", ".join(options) or "-",
        ]
        yield "| " + " | ".join(cells) + " |"


def table():
    return "".join(line + "\n" for line in lines())


def write():
    before, rest = PAGE.read_text().split(START)
    PAGE.write_text(before + START + table() + END + rest.split(END)[1])


if __name__ == "__main__":
    print(table())
    if "--write" in sys.argv:
        write()
