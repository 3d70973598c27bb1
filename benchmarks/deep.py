"""Deep networks: a plain PyTorch loop, and fedsum's engines loop, batched (stacked clients) and streams.

python benchmarks/deep.py --rows fl-simulator --engines plain streams
python benchmarks/deep.py [--rows resnet-tf32 resnet-bf16 bert-tf32 bert-bf16] [--engines plain loop batched streams]
                          [--rounds 10] [--turns 2] [--profile] [--crossover] [--small] [--out results.json]

resnet: ResNet-18 with GroupNorm, 10 clients, K = 10, batches of 32 images of 32x32. bert: BERT-base with random
weights, 2 clients, K = 3, batches of 4 sentences of 64 tokens. fl-simulator: the CIFAR-10 workload that FL-Simulator
publishes, ResNet-18 with GroupNorm, 10 of 100 clients of 500 images each, 5 local epochs (K = 50) with batches of 50.
A row without a precision means tf32 and bf16. Data are random, which does not change the time.

The engines take turns. In the first turn, `start` is the time before and in the first round, less one round, and
`GiB` is the memory that torch's allocator added. --profile prints the kernels that take most of one round of streams.
--crossover times batched and streams for networks of growing width, from which `STACKED_UP_TO` in engine/choose.py
follows. The flags --branches, --no-channels-last, --no-compile, --compiler and --cudnn-limit change the engine streams.
"""

import argparse
import copy
import json
import time
import warnings

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import fedsum
from fedsum.engine import choose, client_step, streams
from fedsum.tasks import ClientData, Standardize, Task, models, partition

ENGINES = ("plain", "loop", "batched", "streams")
ROWS = ("resnet-tf32", "resnet-bf16", "bert-tf32", "bert-bf16")
MORE_ROWS = ("fl-simulator-tf32", "fl-simulator-bf16")
GIB = 2**30


class Silent(Task):
    """A task without evaluation."""

    def evaluate(self, x):
        return {"train_loss": 0.0}


class Workload:
    """A network, random data, and the numbers of a round."""

    def __init__(self, make, inputs, classes, *, active, K, batch, prepare=None, clients=None):
        self.make, self.inputs, self.active, self.K, self.batch = make, inputs, active, K, batch
        self.prepare, self.clients = prepare, clients or 2 * active
        self.targets = torch.randint(0, classes, (len(inputs),), generator=torch.Generator().manual_seed(1))
        self.split = partition.iid(len(inputs), self.clients, seed=0)

    def task(self):
        data = ClientData(self.inputs, self.targets, self.split)
        return Silent(self.make, nn.functional.cross_entropy, data, prepare=self.prepare)


def resnet(small, width=64, count=10_000, **numbers):
    size, count, width = (8, 400, 8) if small else (32, count, width)
    images = torch.randint(
        0, 256, (count, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    numbers = numbers or ({"active": 2, "K": 2, "batch": 8} if small else {"active": 10, "K": 10, "batch": 32})
    return Workload(
        lambda: models.resnet18(width=width), images, 10, prepare=Standardize((0.5,) * 3, (0.25,) * 3), **numbers
    )


def fl_simulator(small):
    """The images are divided evenly: K batches are exactly 5 epochs (1 if small)."""
    clients, active, batch = (20, 2, 4) if small else (100, 10, 50)
    return resnet(small, count=50_000, clients=clients, active=active, batch=batch, K=5 if small else 50)


def mlp(small, width):
    inputs = torch.randn(1000 if small else 10_000, 784, generator=torch.Generator().manual_seed(0))
    numbers = {"active": 2, "K": 2, "batch": 8} if small else {"active": 10, "K": 10, "batch": 32}
    return Workload(lambda: models.mlp(784, [width, width], 10), inputs, 10, **numbers)


def bert(small):
    import transformers

    from fedsum.tasks.transformer import SentenceClassifier

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.BertConfig(**(sizes if small else {}))

    def make():
        transformer = transformers.AutoModel.from_config(config, attn_implementation="eager")
        return SentenceClassifier(transformer, config.hidden_size, 2, config.hidden_dropout_prob)

    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, config.vocab_size, (200, 16) if small else (4000, 64), generator=generator)
    return Workload(make, tokens, 2, active=2, K=2 if small else 3, batch=4)


class PlainLoop:
    """FedAvg in plain PyTorch: eager, one client after the other."""

    def __init__(self, workload, device, precision):
        self.load, self.device, self.bf16 = workload, device, precision == "bf16"
        self.model = workload.make().to(device).train()
        inputs = workload.inputs.to(device)
        self.inputs = inputs if workload.prepare is None else workload.prepare(inputs, torch.float32)
        self.targets = workload.targets.to(device)
        self.parts = [torch.from_numpy(part).to(device) for part in workload.split.parts]

    def round(self, t):
        load, mean = self.load, [torch.zeros_like(p) for p in self.model.parameters()]
        for client in np.random.default_rng(t).choice(load.clients, load.active, replace=False):
            local = copy.deepcopy(self.model)
            optimiser = torch.optim.SGD(local.parameters(), lr=0.01)
            part = self.parts[client]
            order = part[torch.randint(len(part), (load.K * load.batch,), device=self.device)]
            for batch in order.split(load.batch):
                optimiser.zero_grad()
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                    outputs = local(self.inputs[batch])
                nn.functional.cross_entropy(outputs.float(), self.targets[batch]).backward()
                optimiser.step()
            for total, p in zip(mean, local.parameters(), strict=True):
                total += p.detach() / load.active
        with torch.no_grad():
            for p, total in zip(self.model.parameters(), mean, strict=True):
                p.copy_(total)


class Clock:
    """Seconds of each round, and the kernels of one of them."""

    def __init__(self, device, profiled=None):
        self.device, self.seconds, self._profiled, self._profiler = device, [], profiled, None
        self._since = time.perf_counter()

    def round_done(self, done):
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds.append(now - self._since)
        if self._profiler is not None:
            self._profiler.__exit__(None, None, None)
            by = "self_cuda_time_total" if self.device.type == "cuda" else "self_cpu_time_total"
            print(self._profiler.key_averages().table(sort_by=by, row_limit=30, max_name_column_width=90))
            self._profiler = None
        if len(self.seconds) == self._profiled:
            self._profiler = torch.profiler.profile()
            self._profiler.__enter__()
        self._since = time.perf_counter()


def turn(workload, task, engine, precision, device, rounds, *, profile=False):
    """Seconds of each round of one turn; the first contains the start."""
    clock = Clock(device, profiled=rounds - 1 if profile else None)
    if engine == "plain":
        high = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        flags = torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=True)
        with flags:
            plain = PlainLoop(workload, device, precision)
            for t in range(rounds):
                plain.round(t)
                clock.round_done(None)
        torch.set_float32_matmul_precision(high)
        return clock.seconds
    fedsum.simulate(
        task,
        fedsum.FedAvg(),
        fedsum.Uniform(workload.clients, workload.active),
        rounds=rounds,
        local_steps=workload.K,
        eta_l=0.01,
        batch_size=workload.batch,
        eval_every=rounds,
        engine=engine,
        device=device,
        precision=precision,
        on_round=clock.round_done,
        progress=False,
    )
    return clock.seconds


def measured(name, workload, engines, precision, device, arguments):
    """One result per engine; the engines take turns."""
    cuda, results = device.type == "cuda", {}
    tasks = {engine: workload.task() for engine in engines if engine != "plain"}
    times = {engine: [] for engine in engines}
    for number in range(arguments.turns):
        for engine in list(times):
            before = 0
            if cuda:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_reserved()
            profile = arguments.profile and engine == "streams" and number == arguments.turns - 1
            try:
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    seconds = turn(
                        workload, tasks.get(engine), engine, precision, device, arguments.rounds, profile=profile
                    )
            except Exception as error:
                reason = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
                results[engine] = {"row": name, "engine": engine, "failed": reason}
                del times[engine]
                print(f"{name} {engine} failed: {reason}", flush=True)
                continue
            for warning in said:
                print(f"{name} {engine} said: {warning.message}", flush=True)
            times[engine] += seconds[1 : -1 if profile else None]
            median = float(np.median(times[engine]))
            if number == 0:
                peak = torch.cuda.max_memory_reserved() - before if cuda else 0
                results[engine] = {"row": name, "engine": engine, "GiB": peak / GIB, "start_s": seconds[0] - median}
            results[engine]["ms"] = median * 1e3
            results[engine]["spread_ms"] = float(np.ptp(np.quantile(times[engine], [0.1, 0.9]))) * 1e3
            line = "  ".join(f"{key} {value:.2f}" for key, value in results[engine].items() if isinstance(value, float))
            print(f"{name} {engine} turn {number + 1}: {line}", flush=True)
    return list(results.values())


def crossover(device, arguments):
    """Batched against streams for networks of growing width."""
    results = []
    cases = [("mlp", width, mlp) for width in arguments.mlp_widths]
    cases += [("resnet", width, lambda small, width: resnet(small, width=width)) for width in arguments.resnet_widths]
    for name, width, make in cases:
        workload = make(arguments.small, width)
        d = workload.task().d
        rows = measured(f"{name} width {width}, d = {d}", workload, ["batched", "streams"], "tf32", device, arguments)
        results += [row | {"d": d} for row in rows]
    return results


def configure(arguments):
    """The engine streams as the flags describe it."""
    streams.BRANCHES = arguments.branches
    client_step.CHANNELS_LAST = not arguments.no_channels_last
    client_step.COMPILER |= json.loads(arguments.compiler)
    if arguments.no_compile:
        client_step.ClientStep.compile = lambda self: None
    if arguments.cudnn_limit is not None:
        torch.backends.cudnn.benchmark_limit = arguments.cudnn_limit
    choose.kernels.steps = lambda task: None  # torch's kernels in every engine


NETWORKS = {"resnet": resnet, "bert": bert, "fl-simulator": fl_simulator}


def chosen_rows(names):
    """The rows of these names; a network's name means both of its precisions."""
    return [row for name in names for row in (*ROWS, *MORE_ROWS) if name in (row, row.rpartition("-")[0])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=(*ROWS, *MORE_ROWS, *NETWORKS))
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--rounds", type=int, default=10, help="per turn")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--crossover", action="store_true", help="instead of the rows")
    parser.add_argument("--mlp-widths", nargs="*", type=int, default=[64, 256, 1024, 4096])
    parser.add_argument("--resnet-widths", nargs="*", type=int, default=[8, 16, 32])
    parser.add_argument("--branches", type=int, default=streams.BRANCHES)
    parser.add_argument("--no-channels-last", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--compiler", default="{}", help="further arguments of torch.compile, as JSON")
    parser.add_argument("--cudnn-limit", type=int, help="algorithms that cuDNN tries; 0: all")
    parser.add_argument("--small", action="store_true", help="tiny networks and data, to test this script")
    parser.add_argument("--out", help="write the numbers here as JSON")
    arguments = parser.parse_args()
    configure(arguments)
    device = torch.device(arguments.device)
    results = crossover(device, arguments) if arguments.crossover else []
    for row in [] if arguments.crossover else chosen_rows(arguments.rows):
        network, _, precision = row.rpartition("-")
        workload = NETWORKS[network](arguments.small)
        results += measured(row, workload, arguments.engines, precision, device, arguments)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    table = Table("row", "engine", "ms per round", "spread", "GiB", "start, s", "against plain", title=name)
    plain = {result["row"]: result.get("ms") for result in results if result["engine"] == "plain"}
    for result in results:
        if "failed" in result:
            table.add_row(result["row"], result["engine"], result["failed"])
            continue
        speedup = f"{plain[result['row']] / result['ms']:.1f}x" if plain.get(result["row"]) else ""
        numbers = (
            f"{result['ms']:.1f}",
            f"{result['spread_ms']:.1f}",
            f"{result['GiB']:.2f}",
            f"{result['start_s']:.1f}",
        )
        table.add_row(result["row"], result["engine"], *numbers, speedup)
    Console(width=140).print(table)
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump({"device": name, "flags": vars(arguments), "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
