"""The error of clients' gradients in tf32, with our kernels and with torch's: a trained network, real images.

python benchmarks/rounding.py [--set svhn] [--clients 20] [--rounds 1] [--batch 64] [--steps 400] [--out results.json]

On CUDA torch's kernels use tf32. On a CPU torch has no tf32: its convolutions get factors rounded to ten bits instead,
and our kernels are interpreted, which takes 20 s per client. The network is trained for some steps first, so that
gradients differ by orders of magnitude, as they do late in a run.
"""

import argparse
import json
import os
from unittest import mock

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch.nn import functional as F

import fedsum
from fedsum.engine import arithmetic, kernels
from fedsum.engine.kernels import networks

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")


def to_ten_bits(x):
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.round(mantissa * 2**11) / 2**11, exponent)


class RoundedConvolution(torch.autograd.Function):
    """A convolution with stride and padding 1 and tf32's rounding, forward and backward."""

    @staticmethod
    def forward(ctx, images, weight, bias):
        images, weight = to_ten_bits(images), to_ten_bits(weight)
        ctx.save_for_backward(images, weight)
        return torch.conv2d(images, weight, bias, padding=1)

    @staticmethod
    def backward(ctx, slope):
        (images, weight), rounded = ctx.saved_tensors, to_ten_bits(slope)
        return (
            torch.nn.grad.conv2d_input(images.shape, weight, rounded, padding=1),
            torch.nn.grad.conv2d_weight(images, weight.shape, rounded, padding=1),
            slope.sum((0, 2, 3)),
        )


def trained(task, steps):
    """Weights after `steps` steps on samples of all clients."""
    module = task.model(task.init(0))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.02, momentum=0.9)
    draw = torch.Generator().manual_seed(0)
    for _ in track(range(steps), description="train", transient=True):
        inputs, targets = task.samples(torch.randint(len(task.targets), (128,), generator=draw).to(DEVICE))
        optimizer.zero_grad()
        F.cross_entropy(module(inputs), targets).backward()
        optimizer.step()
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def torchs(task, x, client, batch):
    if CUDA:
        return task.gradient(x, client, batch)
    with mock.patch.object(F, "conv2d", lambda x, w, b, *_: RoundedConvolution.apply(x, w, b)):
        return task.gradient(x, client, batch)


def our_steps(task):
    if CUDA:
        return kernels.steps(task)
    on_cpu = mock.patch.object(networks, "kernels_allowed", return_value=True)
    free_memory = mock.patch.object(torch.cuda, "mem_get_info", return_value=(2**36, 2**36))
    with on_cpu, free_memory:
        return kernels.steps(task)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="svhn", choices=["svhn", "cifar10"], help="sets whose network has no dropout")
    parser.add_argument("--clients", type=int, default=20, help="evenly spaced among 100 clients")
    parser.add_argument("--rounds", type=int, default=1, help="batches per client")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=400, help="training steps before the measurement")
    parser.add_argument("--out", help="write the numbers here as JSON")
    arguments = parser.parse_args()
    if not CUDA:
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported, which torch's optimizers do
    task = fedsum.tasks.vision(arguments.set).to(DEVICE, torch.float32)
    exact = task.to(DEVICE, torch.float64)
    clients = torch.arange(0, task.n, max(1, task.n // arguments.clients))[: arguments.clients]
    errors = {"ours": [], "torch's": [], "between them": []}
    with arithmetic(DEVICE, "tf32", deterministic=False):
        x = trained(task, arguments.steps)
        steps, zeros = our_steps(task), torch.zeros(1, len(x), device=DEVICE)
        cases = [(t, int(client)) for t in range(arguments.rounds) for client in clients]
        for t, client in track(cases, description="gradients", transient=True):
            batch = task.batches(0, t, client, 1, arguments.batch).to(DEVICE)
            expected = exact.gradient(x.double(), client, batch[0]).float()
            ours = steps(x[None], zeros, zeros[0, 0], torch.tensor([client], device=DEVICE), batch[:, None])[0]
            theirs = torchs(task, x, client, batch[0])
            for name, (one, other) in zip(errors, ((ours, expected), (theirs, expected), (ours, theirs)), strict=True):
                errors[name].append(float((one - other).norm() / expected.norm()))
    accuracy = task.evaluate(x)["test_accuracy"]
    where = torch.cuda.get_device_name() if CUDA else "a CPU, emulated"
    table = Table(title=f"{arguments.set}, {len(cases)} gradients at {accuracy:.0%}, tf32 on {where}: relative error")
    for head in ("", "median", "90%", "largest"):
        table.add_column(head, justify="right")
    for name, values in errors.items():
        quantiles = torch.tensor(values).quantile(torch.tensor([0.5, 0.9, 1.0]))
        table.add_row(name, *(f"{float(q):.2e}" for q in quantiles))
    Console(width=100).print(table)
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump({"accuracy": accuracy, "errors": errors}, file, indent=1)


if __name__ == "__main__":
    main()
