"""Time per round on Flower: fedsum's FedAvg, with its protocol and checkpoints, beside Flower's own FedAvg.

python benchmarks/overhead.py [--rounds 8] [--turns 2] [--out benchmarks/results/overhead.json]

Real processes on 127.0.0.1: a SuperLink and three SuperNodes. One run alternates between the two. The model has
100,100 parameters and little local work, so that a round consists of process starts, polls and messages. The first
round of each turn is left out, because fedsum asks the SuperNodes for their client ids in it.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from flower_net import Net, wait_for

APP = Path(__file__).parent / "overhead_app"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Net(folder) as net:
        del net.environment["FLWR_SUPEREXEC_TASK_POLL_INTERVAL"]  # Flower's default
        net.superlink()
        for i in range(3):
            net.supernode(i)
        run = net.run(APP, rounds=args.rounds, turns=args.turns)
        path = run / "times.json"
        times = wait_for(lambda: path.exists() and json.loads(path.read_text()), 900, "the run")
    rounds = {name: [b - a for turn in turns for a, b in pairwise(turn[1:])] for name, turns in times.items()}
    results = {
        name: {"median_s": round(statistics.median(seconds), 2), "rounds_s": [round(s, 2) for s in seconds]}
        for name, seconds in rounds.items()
    }
    results["ratio"] = round(results["fedsum"]["median_s"] / results["flower"]["median_s"], 2)
    results["cores"], results["load"] = os.cpu_count(), os.getloadavg()
    print(json.dumps(results, indent=1))
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
