"""fedsum, pfl-research and Flower's simulation on the same workloads and machine, alternating round by round.

python benchmarks/peers.py [--workloads mnist cifar10 pfl-cifar10] [--rounds 10] [--out results.json]

Each framework has its own environment (made on the first call, which takes some minutes). Files, model, local steps and
memory allocator are the same; peers/README.md describes the setup. No framework evaluates. Run nothing else on the
machine.
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
    """By framework: the seconds of each round, and the change of its model's loss."""
    path = folder / f"{name}.npz"
    Workload.drawn(name).write(path)
    with ExitStack() as stack:
        rivals = {framework: stack.enter_context(Rival(framework, path, log=log)) for framework in FRAMEWORKS}
        rows = {framework: [] for framework in rivals}
        for _ in track(range(rounds), description=name, transient=True):
            for framework, rival in rivals.items():
                rows[framework] += rival.run(1)
        return rows, {framework: rival.finish() for framework, rival in rivals.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", default=list(RECIPES), choices=RECIPES)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", help="write the numbers here as JSON")
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "log", "w") as log:
        for name in arguments.workloads:
            rows, verdicts = compare(name, arguments.rounds, Path(folder), log)
            recipe = RECIPES[name]
            for framework, timed in rows.items():
                wrong = [
                    row
                    for row in timed
                    if (row["clients"], row["steps"]) != (recipe.cohort, recipe.cohort * recipe.steps)
                ]
                if wrong:
                    raise RuntimeError(
                        f"{framework} trained other clients or steps than the workload asks for: {wrong[0]}"
                    )
                results.append(
                    {
                        "workload": recipe.title,
                        "framework": framework,
                        "seconds": median(row["seconds"] for row in timed),
                        "all_seconds": [row["seconds"] for row in timed],
                        **{key: verdicts[framework][key] for key in ("loss_before", "loss_after")},
                    }
                )
    table = Table(title=f"Seconds per round, median of {arguments.rounds} alternating, {platform.machine()}, CPU")
    for head in ("workload", "framework", "seconds", "fedsum is faster", "loss before", "after"):
        table.add_column(head, justify="left" if head in ("workload", "framework") else "right")
    for row in results:
        ours = next(r["seconds"] for r in results if r["workload"] == row["workload"] and r["framework"] == "fedsum")
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
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
