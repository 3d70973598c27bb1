"""The paper's workload (20 of 100 clients, K = 10, batch 128): fedsum against a plain PyTorch loop.

python benchmarks/engine.py [--device cuda] [--models mnist cifar10 svhn] [--precision tf32] [--rounds 30]
                            [--torch-kernels] [--out results.json]

--models also takes networks of other benchmarks: pfl (pfl-research's network for CIFAR-10), femnist and lenet.

Both train the same CNN on data that is already on the device, without evaluation. The two alternate every five rounds,
so that other load on the machine affects both; the ratio is that of the medians. Images are random, which does not
change the time.
"""

import argparse
import copy
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from models import pfl_cifar10

import fedsum
from fedsum.engine import kernels as our_kernels
from fedsum.tasks import ClientData, Standardize, Task, models, partition

CLIENTS, ACTIVE, K, BATCH, TURN = 100, 20, 10, 128, 5
SETS = {
    "mnist": (models.mnist_cnn, (60_000, 1, 28, 28)),
    "svhn": (models.svhn_cnn, (73_257, 3, 32, 32)),
    "cifar10": (models.cifar10_cnn, (50_000, 3, 32, 32)),
    "pfl": (lambda: nn.Sequential(*pfl_cifar10()), (50_000, 3, 32, 32)),
    "femnist": (models.femnist_cnn, (60_000, 1, 28, 28)),
    "lenet": (models.lenet5, (60_000, 1, 28, 28)),
}
PAPER = ("mnist", "svhn", "cifar10")


class PlainLoop:
    """FedAvg in plain PyTorch: eager, NCHW, one client after the other, torch's default settings."""

    def __init__(self, make, inputs, targets, parts):
        self.model, self.inputs, self.targets = make().to(inputs.device), inputs, targets
        self.parts = [torch.from_numpy(part).to(inputs.device) for part in parts]

    def round(self, t):
        active = np.random.default_rng(t).choice(CLIENTS, ACTIVE, replace=False)
        mean = [torch.zeros_like(p) for p in self.model.parameters()]
        for client in active:
            local = copy.deepcopy(self.model)
            optimiser = torch.optim.SGD(local.parameters(), lr=0.01)
            part = self.parts[client]
            order = torch.cat([part[torch.randperm(len(part), device=part.device)] for _ in range(3)])
            for k in range(K):
                batch = order[k * BATCH : (k + 1) * BATCH]
                optimiser.zero_grad()
                loss = nn.functional.cross_entropy(local(self.inputs[batch]), self.targets[batch])
                loss.backward()
                optimiser.step()
            for total, p in zip(mean, local.parameters(), strict=True):
                total += p.detach() / ACTIVE
        with torch.no_grad():
            for p, total in zip(self.model.parameters(), mean, strict=True):
                p.copy_(total)


def alternating(plain, task, rounds, *, device, precision, engine):
    """Median seconds per round of the plain loop and of fedsum, which alternate."""
    seconds = {"plain": [], "fedsum": []}

    def clock(since):
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - since

    started = 0.0

    def on_round(done):
        nonlocal started
        if done.round % TURN:
            return
        seconds["fedsum"].append(clock(started) / TURN)
        started = time.perf_counter()
        # The plain loop uses torch's default flags, not the flags of the fedsum run.
        flags = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=False, allow_tf32=True)
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        with flags:
            for t in range(TURN):
                plain.round(done.round + t)
        torch.set_float32_matmul_precision(before)
        seconds["plain"].append(clock(started) / TURN)
        started = time.perf_counter()

    started = time.perf_counter()
    fedsum.simulate(
        task,
        fedsum.FedAvg(),
        fedsum.Uniform(CLIENTS, ACTIVE),
        rounds=rounds,
        local_steps=K,
        eta_l=0.01,
        batch_size=BATCH,
        eval_every=rounds,
        engine=engine,
        device=device,
        precision=precision,
        on_round=on_round,
    )
    return {name: float(np.median(values[1:])) for name, values in seconds.items()}


class Silent(Task):
    """A task without evaluation."""

    def evaluate(self, x):
        return {"train_loss": 0.0}


def ceilings(device, precision):
    """Floating-point operations per second and bytes per second of the device, measured."""
    n = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(n, n, device=device) for _ in range(2))
    big = torch.empty(2**28 if device.type == "cuda" else 2**24, device=device)

    def rate(work, run):
        for _ in range(2):
            run()
        best = 0.0
        for _ in range(5):
            started = time.perf_counter()
            run()
            if device.type == "cuda":
                torch.cuda.synchronize()
            best = max(best, work / (time.perf_counter() - started))
        return best

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        return rate(2 * n**3, lambda: a @ b), rate(2 * big.nbytes, big.clone)
    finally:
        torch.set_float32_matmul_precision(before)


def floor(task, device, precision):
    """Lower bounds on the seconds per round, by arithmetic and by memory traffic."""
    flops_per_second, bytes_per_second = ceilings(device, precision)
    x, batch = task.init(0), task.batches(0, 0, 0, 1, BATCH)[0]
    with FlopCounterMode(display=False) as counter:
        task.gradient(x, 0, batch)
    steps = ACTIVE * K
    flops = counter.get_total_flops() * steps
    # A step must read the model, write it, read and write the sum of gradients, and read its samples.
    moved = (4 * task.d * 4 + task.inputs[0].nbytes * BATCH) * steps
    return flops / flops_per_second, moved / bytes_per_second, flops, moved


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", nargs="+", default=PAPER, choices=SETS)
    parser.add_argument("--precision", nargs="+", choices=("tf32", "fp32"), help="default: fp32, on CUDA both")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--torch-kernels", action="store_true", help="do not use our own kernels")
    parser.add_argument("--out", help="write the numbers here as JSON")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    our_steps, kernels = our_kernels.steps, "torch's"

    def recording_steps(task):
        nonlocal kernels
        steps = None if arguments.torch_kernels else our_steps(task)
        kernels = "ours" if steps else "torch's"
        return steps

    our_kernels.steps = recording_steps
    precisions = arguments.precision or (("tf32", "fp32") if device.type == "cuda" else ("fp32",))
    cases = [(name, precision) for name in arguments.models for precision in precisions]
    results = []
    for name, precision in track(cases, description="engine", transient=True):
        make, shape = SETS[name]
        images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        targets = torch.randint(0, 10, shape[:1], generator=torch.Generator().manual_seed(1))
        split = partition.iid(shape[0], CLIENTS, seed=0)
        scaled = images.float().div_(255).to(device)
        plain = PlainLoop(make, scaled, targets.to(device), split.parts)
        # Scales to [0, 1], as for the plain loop; our kernels support this preparation.
        prepare = Standardize((0.0,) * shape[1], (1.0,) * shape[1])
        task = Silent(make, nn.functional.cross_entropy, ClientData(images, targets, split), prepare=prepare)
        engine = "batched" if device.type == "cuda" else "workers"
        seconds = alternating(plain, task, arguments.rounds, device=device, precision=precision, engine=engine)
        arithmetic, traffic, flops, moved = floor(task.to(device, torch.float32), device, precision)
        results.append(
            {
                "model": name,
                "precision": precision,
                "kernels": kernels,
                "device": torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} cores",
                "plain_ms": seconds["plain"] * 1e3,
                "fedsum_ms": seconds["fedsum"] * 1e3,
                "ratio": seconds["plain"] / seconds["fedsum"],
                "floor_arithmetic_ms": arithmetic * 1e3,
                "floor_traffic_ms": traffic * 1e3,
                "gflop": flops / 1e9,
                "gbyte": moved / 1e9,
                "gap": seconds["fedsum"] / max(arithmetic, traffic),
            }
        )
    table = Table(title=f"One round, {ACTIVE} of {CLIENTS} clients, K = {K}, batch {BATCH}, on {results[0]['device']}")
    heads = (
        "model",
        "precision",
        "kernels",
        "plain, ms",
        "fedsum, ms",
        "ratio",
        "floor: GFLOP, ms",
        "floor: GB, ms",
        "over floor",
    )
    for head in heads:
        table.add_column(head, justify="right")
    for row in results:
        table.add_row(
            row["model"],
            row["precision"],
            row["kernels"],
            f"{row['plain_ms']:.1f}",
            f"{row['fedsum_ms']:.1f}",
            f"{row['ratio']:.1f}x",
            f"{row['gflop']:.0f}, {row['floor_arithmetic_ms']:.1f}",
            f"{row['gbyte']:.2f}, {row['floor_traffic_ms']:.2f}",
            f"{row['gap']:.1f}x",
        )
    Console(width=130).print(table)
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
