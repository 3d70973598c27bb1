"""One rank of a run of every algorithm: `rank_algorithms.py FOLDER`. Saves the final models under the rank's name."""

import os
import sys
from pathlib import Path

import torch
from problems import N, decaying, noisy
from safetensors.torch import save_file

import fedsum
from fedsum.algorithms import ALGORITHMS


def final_models():
    """The final models and last rows of every algorithm, FedSUM's twice; also of asynchronous runs.

    Some cohorts are empty. Two clients arrive at a time: some ranks have none of them.
    """
    torch.set_num_threads(1)
    options = {"rounds": 25, "local_steps": 3, "eta_l": decaying, "eval_every": 25, "dtype": torch.float64}
    found = {}
    for name, algorithm in ALGORITHMS.items():
        for again in ("", " again") if name == "FedSUM" else ("",):
            history = fedsum.simulate(
                noisy(), algorithm(), fedsum.Independent(N, 0.3), seed=2, engine="loop", **options
            )
            columns = ("train_loss", "communication", "bytes", "tau")
            found[name + again] = history.x
            found[f"{name}{again} row"] = torch.tensor([history.rows[-1][c] for c in columns], dtype=torch.float64)
    devices = fedsum.Devices(seconds_per_step=fedsum.LogUniform(1, 10))
    for algorithm in (fedsum.FedSUM(), fedsum.FedBuff()):
        arrivals = fedsum.Asynchronous(N, devices, 2, 5, jitter=0.2)
        history = fedsum.simulate(noisy(), algorithm, arrivals, seed=2, engine="loop", **options)
        found[f"{algorithm.name} asynchronous"] = history.x
    return found


if __name__ == "__main__":
    save_file(final_models(), Path(sys.argv[1]) / f"rank{os.environ['RANK']}.safetensors")
