"""Time per round and memory against N: 100 active clients of N, a model of d = 7,850 parameters.

python benchmarks/scale.py [--schedule intervals] [--device cuda] [--rounds 60] [--out results.json]
python benchmarks/scale.py --active 10000 [--places host file] [--small]     # instead of it, see large_cohort.py

With `--schedule intervals` every client is available in three intervals of a repeated week, a quarter of the time, and
100 of the available clients are active. Making the index of intervals is not part of the time per round.

FedSUM, so that every client that was active has a state. Runs of different N alternate; the time per round is the
median of the best run. All clients draw from one pool of random samples, because the data of a million clients would
not fit in memory.
"""

import argparse
import json
import os
import time

import large_cohort
import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

import fedsum
from fedsum.base.keyed import Purpose, rng
from fedsum.tasks import Task
from fedsum.tasks.models import logistic

ACTIVE, SAMPLES = 100, 2000


class Pool(Task):
    """n clients that draw from one pool of samples."""

    def __init__(self, n):
        draw = torch.Generator().manual_seed(0)
        data = (torch.randn(SAMPLES, 784, generator=draw), torch.randint(10, (SAMPLES,), generator=draw))
        super().__init__(lambda: logistic(784, 10), nn.functional.cross_entropy, [data])
        self._n = n

    @property
    def n(self):
        return self._n

    def batches(self, seed, t, client, K, batch_size):
        draw = rng(seed, Purpose.BATCHES, t, client)
        return torch.from_numpy(draw.integers(SAMPLES, size=(K, batch_size)))

    def gradient(self, x, client, batch):
        return super().gradient(x, 0, batch)

    def gradients(self, x, clients, batch):
        return super().gradients(x, torch.zeros_like(clients), batch)

    def evaluate(self, x):
        return {"train_loss": 0.0}


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def uniform(n):
    return fedsum.Uniform(n, ACTIVE)


def intervals(n):
    """Three intervals of 28 half hours per client in a week of 336; each client has its own times."""
    draw = np.random.default_rng(0)
    starts = (draw.integers(0, 112, n)[:, None] + 112 * np.arange(3)).ravel()
    clients = np.repeat(np.arange(n), 3)
    week = {"n": n, "round_length": 1, "offset": 0, "rounds": 336, "repeat": True}
    return fedsum.Sampled(fedsum.Availability.from_intervals(clients, starts, starts + 28, **week), ACTIVE)


SCHEDULES = {"uniform": uniform, "intervals": intervals}


def run(n, rounds, device, schedule):
    """Median seconds per round, growth of memory in bytes, clients seen, bytes of their states."""
    task, seconds = Pool(n), []
    before = resident()
    started = time.perf_counter()

    def on_round(done):
        nonlocal started
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
        started = time.perf_counter()

    history = fedsum.simulate(
        task,
        fedsum.FedSUM(),
        schedule,
        rounds=rounds,
        local_steps=5,
        eta_l=0.01,
        batch_size=32,
        eval_every=rounds,
        device=device,
        engine="loop" if device == "cpu" else "batched",
        on_round=on_round,
    )
    gained = resident() - before
    return float(np.median(seconds[3:])), gained, len(history.clients), len(history.clients) * task.d * 4


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedule", choices=SCHEDULES, default="uniform")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--active", type=int, help="active clients of a million; measures large_cohort.py instead")
    parser.add_argument("--places", nargs="+", default=["host"], choices=large_cohort.PLACES, help="of client states")
    parser.add_argument("--small", action="store_true", help="with --active: little local work, to test this script")
    parser.add_argument("--out", help="write the numbers here as JSON")
    arguments = parser.parse_args()
    if arguments.active:
        return large_cohort.measure(arguments)
    sizes, turns = [10**3, 10**4, 10**5, 10**6], 3
    made, making = {}, {}
    for n in sizes:
        started = time.perf_counter()
        made[n] = SCHEDULES[arguments.schedule](n)
        making[n] = time.perf_counter() - started
    run(10**3, 5, arguments.device, made[10**3])  # warms up libraries, compilers and caches
    runs_by_size = {n: [] for n in sizes}
    for _, n in track([(turn, n) for turn in range(turns) for n in sizes], description="scale", transient=True):
        runs_by_size[n].append(run(n, arguments.rounds, arguments.device, made[n]))
    rows = []
    for n, runs in runs_by_size.items():
        seconds = min(run[0] for run in runs)
        rows.append(
            {
                "N": n,
                "ms": seconds * 1e3,
                "making": making[n],
                "seen": runs[0][2],
                "gained": runs[0][1],
                "vectors": runs[0][3],
            }
        )
    table = Table(
        title=f"One round of FedSUM, {ACTIVE} active ({arguments.schedule}), d = 7,850, {arguments.rounds} rounds,"
        f" {arguments.device}"
    )
    for head in (
        "N",
        "ms",
        "against N = 1000",
        "schedule made, s",
        "clients seen",
        "their states, MB",
        "growth of memory, MB",
    ):
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(
            f"{row['N']:,}",
            f"{row['ms']:.1f}",
            f"{row['ms'] / rows[0]['ms']:.2f}x",
            f"{row['making']:.1f}",
            f"{row['seen']:,}",
            f"{row['vectors'] / 1e6:.0f}",
            f"{row['gained'] / 1e6:.0f}",
        )
    Console(width=110).print(table)
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
