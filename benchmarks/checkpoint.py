"""Checkpoints of a large state while training goes on: how much of the time does training stand still?

    python benchmarks/checkpoint.py

A state of 2 GB (FedSUM-CR: two vectors a client) is trained with and without checkpoints, in one run, taking turns;
and once more with each checkpoint written before training goes on, which is what a user would do by hand.
"""

import argparse
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch

import fedsum
from fedsum.runs.recorder import Recorder
from fedsum.tasks import Quadratic


class Wide(Quadratic):
    """A quadratic with the same diagonal for all: as many dimensions as memory holds."""

    def __init__(self, n: int, d: int) -> None:
        self.noise, self.L = 0.0, 1.0
        self.source = {"name": f"{__file__}:Wide", "n": n, "d": d}
        self.centers = torch.arange(n, dtype=torch.float32)[:, None].expand(n, d)
        self.optimum = self.centers.mean(0)

    def to(self, device, dtype):
        return self

    def gradient(self, x, client, batch):
        return x - self.centers[client]

    def batches(self, seed, t, client, K, batch_size):
        return torch.zeros(K)

    def evaluate(self, x):
        return {"train_loss": float((x - self.optimum).square().mean())}


def train(n: int, d: int, rounds: int, every: float, folder: Path | None, wait: bool) -> dict[str, float]:
    paused: list[float] = []
    save = Recorder.save

    def timed(self, state):
        began = time.perf_counter()
        save(self, state)
        if wait:
            self.wait()
        paused.append(time.perf_counter() - began)

    Recorder.save = timed
    moments = []
    try:
        fedsum.simulate(
            Wide(n, d),
            fedsum.FedSUMCR(),
            fedsum.Cyclic(n, 4),
            rounds=rounds,
            local_steps=4,
            eta_l=0.1,
            eval_every=rounds,
            engine="loop",
            folder=folder,
            checkpoint_seconds=every,
            on_round=lambda done: moments.append(time.perf_counter()),
        )
    finally:
        Recorder.save = save
    # From the first round in which every client has been seen: then the state has its full size.
    full = moments[n // 4 :]
    lengths = [b - a for a, b in itertools.pairwise(full)]
    pauses = paused[:-1]  # the last one is waited for, at the end of the run
    return {
        "seconds": full[-1] - full[0],
        "rounds": len(lengths),
        "median_round": statistics.median(lengths),
        "longest_round": max(lengths),
        "checkpoints": len(pauses),
        "longest_pause": max(pauses, default=0.0),
        "paused": sum(pauses),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=160)
    parser.add_argument("--every", type=float, default=20.0, help="seconds between checkpoints")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    d = int(options.gigabytes * 2**30 / (2 * 4 * options.clients))
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, where, wait in (
            ("no checkpoints", None, False),
            ("background", Path(folder) / "a", False),
            ("waiting", Path(folder) / "b", True),
        ):
            found[name] = train(options.clients, d, options.rounds, options.every, where, wait)
            print(name, json.dumps({k: round(v, 4) for k, v in found[name].items()}), flush=True)
    plain = found["no checkpoints"]["seconds"]
    for name in ("background", "waiting"):
        share, slower = found[name]["paused"] / found[name]["seconds"], found[name]["seconds"] / plain - 1
        print(f"{name}: training stood still for {share:.2%} of the time; {slower:+.1%} against no checkpoints")
    if options.out:
        options.out.write_text(json.dumps({"gigabytes": options.gigabytes, "d": d, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
