"""The table of facts in docs/algorithms.md, made from the code and from short runs.

python tests/algorithm_facts.py           # prints the table
python tests/algorithm_facts.py --write   # also writes it into docs/algorithms.md
"""

import re
import sys
from dataclasses import fields
from pathlib import Path

import torch

from fedsum import Biased, Explicit, FedSUM, KnownFedAvg, ServerOpt, simulate
from fedsum.algorithms import ALGORITHMS, card
from fedsum.tasks import Quadratic

PAGE = Path(__file__).parent.parent / "docs/algorithms.md"
START, END = "<!-- facts: python tests/algorithm_facts.py --write -->\n", "<!-- end of facts -->\n"
N, ROUNDS = 8, 1000
SCHEDULE = Biased(N, group=1)
SMALL_STEPS = ("FedAdagrad", "FedYogi", "FedAdam", "ServerOpt")
"""algorithms whose steps have a fixed length per parameter, run with eta_g or lr = 0.01"""


def measured(name):
    """(error under biased participation, whether an empty round moves x)"""
    algorithm = KnownFedAvg(p=SCHEDULE.probability()) if name == "KnownFedAvg" else ALGORITHMS[name]()
    task = Quadratic.random(N, 3, seed=0)
    eta_g = 0.01 if name in SMALL_STEPS[:3] else 1.0
    options = {"local_steps": 4, "eta_l": 0.03, "eta_g": eta_g, "dtype": torch.float64, "eval_model": "server"}

    def run(schedule, rounds):
        return simulate(task, algorithm, schedule, rounds=rounds, eval_every=rounds, **options)

    error = run(SCHEDULE, ROUNDS).rows[-1]["error"]
    one, two = (run(Explicit(N, sets), len(sets)) for sets in ([[0, 3]], [[0, 3], []]))
    return error, not torch.equal(one.x, two.x)


def source(cls):
    """The first citation of the docstring."""
    if issubclass(cls, FedSUM) or cls.__name__.startswith("FedSUM"):
        return "the FedSUM paper"
    return re.search(r"[\w &.-]+, (?:option II )?\d{4}", cls.__doc__.replace("\n", " "))[0].removeprefix("in ").strip()


def lines():
    yield "| | down | up | client state | server memory per client | summable | empty round | error | source | options |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, cls in ALGORITHMS.items():
        facts, (error, moves) = card(cls()), measured(name)
        options = [f"{f.name}={getattr(cls(), f.name)}" for f in fields(cls)]
        options = ["algorithm, optimiser"] if cls is ServerOpt else options
        cells = [
            f"`{name}`",
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


if __name__ == "__main__":
    made = table()
    print(made)
    if "--write" in sys.argv:
        before, rest = PAGE.read_text().split(START)
        PAGE.write_text(before + START + made + END + rest.split(END)[1])
