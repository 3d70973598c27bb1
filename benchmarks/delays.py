"""The cost of one delay update, which grows with the active clients and not with N.

python benchmarks/delays.py [--out results.json]
"""

import argparse
import json
import time

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from fedsum import DelayMeter, Uniform

ROUNDS, ACTIVE = 2000, 100


def naive(last, active, t):
    """The simplest implementation: O(N) per round."""
    last[active] = t
    return int((t - last).max())


def best_of(repeats, run):
    return min(run() for _ in range(repeats))


def microseconds(n):
    sets = [Uniform(n, ACTIVE).active(0, t) for t in range(ROUNDS)]

    def streaming():
        meter = DelayMeter(n)
        started = time.perf_counter()
        for ids in sets:
            meter.update(ids)
        return (time.perf_counter() - started) / ROUNDS * 1e6

    def plain():
        last, rounds = np.full(n, -1), max(20, min(ROUNDS, 2 * 10**7 // n))
        started = time.perf_counter()
        for t in range(rounds):
            naive(last, sets[t], t)
        return (time.perf_counter() - started) / rounds * 1e6

    return best_of(3, streaming), best_of(3, plain)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="write the numbers here as JSON")
    arguments = parser.parse_args()
    rows = []
    for n in track([10**3, 10**4, 10**5, 10**6], description="delays", transient=True):
        ours, plain = microseconds(n)
        rows.append({"N": n, "streaming_us": ours, "plain_us": plain})
    first = rows[0]["streaming_us"]
    table = Table(title=f"One delay update, {ACTIVE} active clients, mean of {ROUNDS} rounds, best of 3")
    for head in ("N", "streaming, us", "against N = 1000", "plain O(N), us", "plain / streaming"):
        table.add_column(head, justify="right")
    for row in rows:
        ours, plain = row["streaming_us"], row["plain_us"]
        table.add_row(f"{row['N']:,}", f"{ours:.1f}", f"{ours / first:.2f}", f"{plain:.1f}", f"{plain / ours:.1f}")
    Console().print(table)
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
