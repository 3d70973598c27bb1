"""CPU time of one local step on one core: plain PyTorch, torch's layers in fedsum, and fedsum's own layers.

python benchmarks/cpu_step.py [--workloads mnist cifar10 pfl-cifar10 minilm] [--repeats 40] [--operations]
                              [--out results.json]

The workloads are those of peers.py, and minilm: a BERT of MiniLM's size (22.7 million parameters) with random weights
and batches of 4 sentences of 32 tokens; it needs transformers. The three ways of training alternate. A time is the
smallest of all repeats, in CPU time of this process, so that it hardly depends on other load of the machine.
`--operations` lists the time of every operation of a step of fedsum's own layers. The allocator has the same settings
as in fedsum's workers and in peers.py.
"""

import argparse
import copy
import json
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from rivals import ALLOCATOR

if any(os.environ.get(name) != value for name, value in ALLOCATOR.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ALLOCATOR})  # glibc reads them at its start

import torch
from models import build
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from workload import RECIPES

import fedsum
from fedsum.engine.local_model import LocalModel
from fedsum.engine.loop import mean_gradient
from fedsum.tasks import Task

MINILM, VOCABULARY = "minilm", 30_522


class Work(NamedTuple):
    """A client's local work."""

    title: str
    network: nn.Module
    inputs: torch.Tensor
    targets: torch.Tensor
    steps: int
    batch: int
    lr: float


def work(name):
    draw = torch.Generator().manual_seed(0)
    if name == MINILM:
        tokens = torch.randint(1, VOCABULARY, (100, 32), generator=draw)
        return Work("BERT of MiniLM's size", minilm(), tokens, torch.randint(2, (100,), generator=draw), 3, 4, 1e-3)
    recipe = RECIPES[name]
    inputs = torch.randn(recipe.size, *recipe.shape, generator=draw)
    targets = torch.randint(10, (recipe.size,), generator=draw)
    return Work(recipe.title, build(name), inputs, targets, recipe.steps, recipe.batch, recipe.lr)


def minilm():
    import transformers

    from fedsum.tasks.transformer import SentenceClassifier

    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    config = transformers.BertConfig(vocab_size=VOCABULARY, **sizes)
    transformer = transformers.AutoModel.from_config(config, attn_implementation="eager")
    return SentenceClassifier(transformer, config.hidden_size, 2, config.hidden_dropout_prob)


def ways(work):
    """The K steps of a client in each of the three ways, and one step of fedsum's layers."""
    task = Task(work.network, nn.functional.cross_entropy, [(work.inputs, work.targets)])
    plan, batches = fedsum.LocalPlan(task.init(0), work.lr), task.batches(0, 0, 0, work.steps, work.batch)
    net, inputs, targets, local = copy.deepcopy(work.network), work.inputs, work.targets, LocalModel.of(task)

    def plain():
        optimiser = torch.optim.SGD(net.parameters(), lr=work.lr)
        for batch in batches:
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(inputs[batch]), targets[batch]).backward()
            optimiser.step()

    return {
        "plain": plain,
        "torch_layers": lambda: mean_gradient(lambda x, batch: task.gradient(x, 0, batch), plan, batches),
        "fedsum": lambda: local.mean_gradient(plan, 0, batches),
    }, lambda: local.gradient(plan.start, 0, batches[0])


def alternating(functions, repeats, steps):
    """The smallest CPU time per step, in ms."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, function in functions.items():
            started = time.process_time()
            function()
            best[name] = min(best[name], (time.process_time() - started) * 1e3 / steps)
    return best


class Operations(TorchDispatchMode):
    """Records the CPU time of every operation, in ms."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        started = time.thread_time()
        result = func(*args, **(kwargs or {}))
        shapes = [tuple(a.shape) for a in args if isinstance(a, torch.Tensor)][:2]
        self.rows.append((str(func), str(shapes), (time.thread_time() - started) * 1e3))
        return result


def operations(step, repeats):
    """Name, shapes and smallest time of each operation of a step."""
    runs = []
    for _ in range(repeats):
        with Operations() as recorded:
            step()
        runs.append(recorded.rows)
    return [(*calls[0][:2], min(call[2] for call in calls)) for calls in zip(*runs, strict=True)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", default=[*RECIPES, MINILM], choices=[*RECIPES, MINILM])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--operations", action="store_true")
    parser.add_argument("--out", help="write the numbers here as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    console, results = Console(width=110), []
    for name in arguments.workloads:
        chosen = work(name)
        functions, step = ways(chosen)
        results.append({"workload": chosen.title, **alternating(functions, arguments.repeats, chosen.steps)})
        if arguments.operations:
            rows = operations(step, arguments.repeats)
            console.print(f"{chosen.title}: {sum(row[2] for row in rows):.2f} ms in {len(rows)} operations")
            for operation, shapes, milliseconds in rows:
                if milliseconds > 0.03:
                    console.print(f"  {milliseconds:6.3f}  {operation:45} {shapes}", highlight=False)
    table = Table(title="CPU time per local step on one core, ms")
    for head in ("workload", "plain PyTorch", "torch's layers in fedsum", "fedsum", "plain / fedsum"):
        table.add_column(head, justify="left" if head == "workload" else "right")
    for row in results:
        numbers = [f"{row[key]:.2f}" for key in ("plain", "torch_layers", "fedsum")]
        table.add_row(row["workload"], *numbers, f"{row['plain'] / row['fedsum']:.2f}x")
    console.print(table)
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
