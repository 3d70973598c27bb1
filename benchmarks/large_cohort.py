"""Cohorts of thousands: S of a million clients are active, a model of d = 551,786 (the CIFAR-10 CNN).

python benchmarks/scale.py --active 10000 [--device cuda] [--places host file] [--small] [--out results.json]

FedAvg: the time per client-step, against 20 of 100 clients. The two alternate.

FedSUM: two rounds, whose client states (S * 2.2 MB per round) are in host memory or in a memory-mapped file. In one
run, transfers of states overlap with local steps. In a second run the device is synchronised around every call of the
state bank, which gives the seconds of the transfers. On CUDA a first run, which allocates pinned memory, is left out.

All clients draw from one pool of random images, because the data of a million clients would not fit in memory.
"""

import gc
import json
import time
from contextlib import ExitStack, contextmanager, suppress
from unittest import mock

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import fedsum
from fedsum.base.keyed import Purpose, rng
from fedsum.engine import StateBank
from fedsum.engine.bank import blocks
from fedsum.tasks import ClientData, Partition, Standardize, Task, models

CLIENTS, FEW, FEW_ACTIVE, ROUNDS, TURNS = 10**6, 100, 20, 2, 3
PLACES = ("host", "file")


class Pool(Task):
    """n clients that draw from one pool of images. Its training steps are Task's, so fedsum's kernels support it."""

    def __init__(self, n, samples):
        draw = torch.Generator().manual_seed(0)
        images = torch.randint(0, 256, (samples, 3, 32, 32), dtype=torch.uint8, generator=draw)
        data = ClientData(images, torch.randint(10, (samples,), generator=draw), Partition([range(samples)]))
        scaled = Standardize((0.0,) * 3, (1.0,) * 3)
        super().__init__(models.cifar10_cnn, nn.functional.cross_entropy, data, prepare=scaled)
        self._n, self._samples = n, samples

    @property
    def n(self):
        return self._n

    def batches(self, seed, t, client, K, batch_size):
        draw = rng(seed, Purpose.BATCHES, t, client)
        return torch.from_numpy(draw.integers(self._samples, size=(K, batch_size)))

    def evaluate(self, x):
        return {"train_loss": 0.0}


def synchronise():
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


class Bench:
    """The sizes of a round, and runs of it."""

    def __init__(self, arguments):
        self.device, self.small = arguments.device, arguments.small
        self.K, self.batch, samples = (2, 8, 500) if self.small else (10, 128, 50_000)
        self.tasks = {n: Pool(n, samples) for n in (FEW, CLIENTS)}

    def run(self, algorithm, n, active, rounds):
        """Seconds of each round, and the history."""
        seconds, since = [], time.perf_counter()

        def on_round(done):
            nonlocal since
            synchronise()
            seconds.append(time.perf_counter() - since)
            since = time.perf_counter()

        cuda = self.device == "cuda"
        history = fedsum.simulate(
            self.tasks[n],
            algorithm,
            fedsum.Uniform(n, active),
            rounds=rounds,
            local_steps=self.K,
            eta_l=0.01,
            batch_size=self.batch,
            eval_every=rounds,
            device=self.device,
            engine="batched" if cuda else "loop",
            precision="tf32" if cuda else "fp32",
            on_round=on_round,
            progress=False,
        )
        return seconds, history


def free_memory():
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def client_steps(bench, active):
    """FedAvg's microseconds per client-step: of 20 of 100 clients, and of the large cohort; the two take turns."""
    cases = {FEW: (FEW_ACTIVE, 4 if bench.small else 20), CLIENTS: (active, ROUNDS)}
    seconds = {n: [] for n in cases}
    for _ in range(TURNS):
        for n, (cohort, rounds) in cases.items():
            # The first round of a run captures graphs and allocates memory.
            seconds[n] += bench.run(fedsum.FedAvg(), n, cohort, rounds + 1)[0][1:]
            free_memory()
    rows = []
    for n, (cohort, _) in cases.items():
        median = float(torch.tensor(seconds[n], dtype=torch.float64).median())
        rows.append({"N": n, "active": cohort, "seconds": median, "us_per_step": median / cohort / bench.K * 1e6})
    return rows


class Transfers:
    """Seconds and bytes of the calls of the state bank. `waits`: the device is synchronised around each call."""

    def __init__(self, waits):
        self.waits, self.seconds, self.bytes = waits, 0.0, 0

    @contextmanager
    def measured(self):
        with ExitStack() as stack:
            for name in ("gather", "scatter", "expect"):
                stack.enter_context(mock.patch.object(StateBank, name, self._around(getattr(StateBank, name))))
            yield self

    def _around(self, method):
        def call(bank, clients, *state):
            if not bank.initial:
                return method(bank, clients, *state)
            started = self._now()
            result = method(bank, clients, *state)
            self.seconds += self._now() - started
            # Every state goes to the device once and back once; `expect` only does earlier what `gather` would do.
            for rows in (result, *state):
                self.bytes += sum(value.nbytes for value in (rows or {}).values())
            return result

        return call

    def settle(self, bank):
        """Completes the writes of the last round."""
        started = time.perf_counter()
        for block in bank._blocks:
            block.settle()
        self.seconds += time.perf_counter() - started

    def _now(self):
        if self.waits:
            synchronise()
        return time.perf_counter()


def two_rounds(bench, active, *, waits):
    transfers = Transfers(waits)
    with transfers.measured():
        seconds, history = bench.run(fedsum.FedSUM(), CLIENTS, active, ROUNDS)
    started = time.perf_counter()
    transfers.settle(history.clients)
    seconds[-1] += time.perf_counter() - started
    where = {"offloaded" if block.offloaded else "here" for block in history.clients._blocks}
    return {"rounds": seconds, "transfer": transfers.seconds, "bytes": transfers.bytes, "blocks": sorted(where)}


def placed(place):
    """No block of states fits on the device, and with "file" none in host memory either."""
    return mock.patch.multiple(blocks, _SHARE=1e-12, host_memory_free=lambda: 1e30 if place == "host" else 0.0)


def peak_gigabytes():
    return torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_initialized() else None


def in_place(bench, active, place):
    """FedSUM's seconds per round with its states in one place, and the seconds and bytes of their transfers."""
    try:
        with placed(place):
            overlapped = two_rounds(bench, active, waits=False)
            free_memory()
            waiting = two_rounds(bench, active, waits=True)
    except (RuntimeError, OSError) as error:  # memory, pinned memory or disk
        return {"place": place, "failed": " ".join(str(error).split())[:300], "peak_gb": peak_gigabytes()}
    finally:
        free_memory()
    return {
        "place": place,
        "blocks": waiting["blocks"],
        "seconds": sum(overlapped["rounds"]) / ROUNDS,
        "seconds_waiting": sum(waiting["rounds"]) / ROUNDS,
        "transfer": waiting["transfer"] / ROUNDS,
        "gigabytes": waiting["bytes"] / ROUNDS / 1e9,
        "all_seconds": [overlapped["rounds"], waiting["rounds"]],
        "peak_gb": peak_gigabytes(),
    }


def transfers(bench, active, places):
    """One row per place."""
    if bench.device == "cuda":  # allocates pinned memory, which later runs use again
        with suppress(RuntimeError, OSError), placed(places[0]):
            two_rounds(bench, active, waits=False)
        free_memory()
    return [in_place(bench, active, place) for place in places]


def least_bytes(bench, active):
    """Bytes that the local steps of a round must move: they read and write model and sum, and read their samples."""
    return (4 * bench.tasks[FEW].d * 4 + 3 * 32 * 32 * bench.batch) * active * bench.K


def measure(arguments):
    bench, active = Bench(arguments), arguments.active
    device = torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU"
    results = {"device": device, "d": bench.tasks[FEW].d, "K": bench.K, "batch": bench.batch}
    results["fedavg"] = client_steps(bench, active)
    show_client_steps(results)
    results["fedsum"] = transfers(bench, active, arguments.places)
    show_transfers(results, active, least_bytes(bench, active))
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump(results, file, indent=1)


def show_client_steps(results):
    table = Table(title=f"FedAvg, d = {results['d']:,}, K = {results['K']}, {results['device']}")
    for head in ("N", "active", "seconds per round", "us per client-step", "against few"):
        table.add_column(head, justify="right")
    few = results["fedavg"][0]["us_per_step"]
    for row in results["fedavg"]:
        numbers = f"{row['seconds']:.4f}", f"{row['us_per_step']:.1f}", f"{row['us_per_step'] / few:.2f}x"
        table.add_row(f"{row['N']:,}", f"{row['active']:,}", *numbers)
    Console(width=120).print(table)


def show_transfers(results, active, least):
    table = Table(title=f"FedSUM, {active:,} of {CLIENTS:,}, per round of {ROUNDS}")
    heads = ("states in", "seconds", "without overlap", "transfer, s", "share of time", "GB", "of local steps' bytes")
    for head in heads:
        table.add_column(head, justify="right")
    for row in results["fedsum"]:
        if "failed" in row:
            print(f"states in {row['place']}: {row['failed']}")
            continue
        table.add_row(
            row["place"],
            f"{row['seconds']:.2f}",
            f"{row['seconds_waiting']:.2f}",
            f"{row['transfer']:.2f}",
            f"{row['transfer'] / row['seconds_waiting']:.0%}",
            f"{row['gigabytes']:.2f}",
            f"{row['gigabytes'] * 1e9 / least:.1%}",
        )
    Console(width=120).print(table)
