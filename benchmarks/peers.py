"""fedsum, pfl-research and Flower's simulation on the same workloads and machine, taking turns round by round.

python benchmarks/peers.py [--workloads mnist cifar10 pfl-cifar10] [--rounds 10] [--out results.json]

Each framework has an environment of its own (made on the first call: some minutes) and the same files, model, local
steps and memory allocator; peers/README.md says how each was set up. Nobody evaluates. Leave the machine idle.
"""

import argparse
import json
import platform
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from rivals import Rival
from workload import RECIPES, Workload

FRAMEWORKS = ("fedsum", "pfl", "flower")


def compare(name, rounds, folder, log):
    """Seconds of each round by framework, and each one's verdict on its model."""
    path = folder / f"{name}.npz"
    Workload.drawn(name).write(path)
    with ExitStack() as stack:
        rivals = {each: stack.enter_context(Rival(each, path, log=log)) for each in FRAMEWORKS}
        rows = {each: [] for each in rivals}
        for _ in track(range(rounds), description=name, transient=True):
            for each, rival in rivals.items():
                rows[each] += rival.run(1)
        return rows, {each: rival.finish() for each, rival in rivals.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", default=list(RECIPES), choices=RECIPES)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", help="write the numbers here as JSON")
    arguments = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "log", "w") as log:
        for name in arguments.workloads:
            rows, verdicts = compare(name, arguments.rounds, Path(folder), log)
            recipe = RECIPES[name]
            for each, timed in rows.items():
                wrong = [
                    row
                    for row in timed
                    if (row["clients"], row["steps"]) != (recipe.cohort, recipe.cohort * recipe.steps)
                ]
                if wrong:
                    raise RuntimeError(f"{each} did other work than it was given: {wrong[0]}")
                found.append(
                    {
                        "workload": recipe.title,
                        "framework": each,
                        "seconds": median(row["seconds"] for row in timed),
                        "all_seconds": [row["seconds"] for row in timed],
                        **{key: verdicts[each][key] for key in ("loss_before", "loss_after")},
                    }
                )
    table = Table(title=f"Seconds a round, median of {arguments.rounds} taking turns, {platform.machine()}, CPU")
    for head in ("workload", "framework", "seconds", "fedsum is faster", "loss before", "after"):
        table.add_column(head, justify="left" if head in ("workload", "framework") else "right")
    for row in found:
        ours = next(r["seconds"] for r in found if r["workload"] == row["workload"] and r["framework"] == "fedsum")
        table.add_row(
            row["workload"],
            row["framework"],
            f"{row['seconds']:.2f}",
            f"{row['seconds'] / ours:.2f}x",
            f"{row['loss_before']:.2f}",
            f"{row['loss_after']:.2f}",
        )
    Console(width=110).print(table)
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
