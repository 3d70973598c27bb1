"""The cost of client states outside the device: CIFAR-10's CNN, FedSUM-CR, 20 of 100 clients, on CUDA.

python benchmarks/bank.py [--rounds 200] [--out results.json]

Three runs of the same seed: states on the device; states in host memory, with transfers that overlap with the device's
work; states in host memory, waiting for each transfer. All three must end with the same bits.
"""

import argparse
import json
from unittest import mock

import torch
from engine import ACTIVE, BATCH, CLIENTS, SETS, K, Silent
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

import fedsum
from fedsum.engine import StateBank
from fedsum.engine.bank import blocks
from fedsum.tasks import ClientData, Standardize, partition


def run(task, rounds):
    history = fedsum.simulate(
        task,
        fedsum.FedSUMCR(),
        fedsum.Uniform(CLIENTS, ACTIVE),
        rounds=rounds,
        local_steps=K,
        eta_l=0.01,
        batch_size=BATCH,
        eval_every=max(1, rounds // 4),
        device="cuda",
        precision="tf32",
        deterministic=True,
    )
    last, previous = history.rows[-1], history.rows[-2]  # the last quarter: compilation happens in the first one
    return (last["seconds"] - previous["seconds"]) / (last["round"] - previous["round"]) * 1e3, history.x.clone()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--out", help="write the numbers here as JSON")
    arguments = parser.parse_args()
    make, shape = SETS["cifar10"]
    data = ClientData(
        torch.randint(0, 256, shape, dtype=torch.uint8),
        torch.randint(0, 10, shape[:1]),
        partition.iid(shape[0], CLIENTS, seed=0),
    )
    prepare = Standardize((0.0,) * shape[1], (1.0,) * shape[1])  # to [0, 1]
    task = Silent(make, nn.functional.cross_entropy, data, prepare=prepare)
    full_device = mock.patch.multiple(blocks, _SHARE=1e-12, host_memory_free=lambda: 1e30)
    no_prefetch = mock.patch.object(StateBank, "expect", return_value=None)
    results = {}
    for place in track(("device", "host, overlapped", "host, waiting"), description="bank", transient=True):
        if place == "host, overlapped":
            full_device.start()
        if place == "host, waiting":
            no_prefetch.start()
        results[place] = run(task, arguments.rounds)
    mock.patch.stopall()
    table = Table(title=f"One round of FedSUM-CR, {task.d:,} parameters, on {torch.cuda.get_device_name()}")
    for head in ("client states", "ms per round", "against the device", "same bits"):
        table.add_column(head, justify="right")
    base, x = results["device"]
    for place, (ms, final) in results.items():
        table.add_row(place, f"{ms:.1f}", f"{ms / base:.2f}x", "yes" if torch.equal(x, final) else "NO")
    Console(width=100).print(table)
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump({place: ms for place, (ms, _) in results.items()}, file, indent=1)


if __name__ == "__main__":
    main()
