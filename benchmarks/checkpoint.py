"""The share of time in which training pauses for checkpoints of a large state.

    python benchmarks/checkpoint.py

Three runs with a state of 2 GB (FedSUM-CR: two vectors per client): without checkpoints, with checkpoints in the
background, and with training that waits for each checkpoint, as a simple implementation would.
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
    """A quadratic with A_i = I for all clients, which needs no memory for the matrices."""

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
    # From the round on in which every client has been active, so that the state has its full size.
    full = moments[n // 4 :]
    lengths = [b - a for a, b in itertools.pairwise(full)]
    pauses = paused[:-1]  # the run waits for its last checkpoint
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
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, run_folder, wait in (
            ("no checkpoints", None, False),
            ("background", Path(folder) / "a", False),
            ("waiting", Path(folder) / "b", True),
        ):
            results[name] = train(options.clients, d, options.rounds, options.every, run_folder, wait)
            print(name, json.dumps({k: round(v, 4) for k, v in results[name].items()}), flush=True)
    plain = results["no checkpoints"]["seconds"]
    for name in ("background", "waiting"):
        share, slower = results[name]["paused"] / results[name]["seconds"], results[name]["seconds"] / plain - 1
        print(f"{name}: training paused for {share:.2%} of the time; {slower:+.1%} time against no checkpoints")
    if options.out:
        options.out.write_text(json.dumps({"gigabytes": options.gigabytes, "d": d, **results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
