"""Memory and time of a model of 110 million parameters: FedSUM and FedSUM-CR, 2 of 8 clients, K = 3, 4 x 64 tokens.

python benchmarks/memory.py [--limit 8] [--engine auto] [--rounds 12] [--out results.json]

BERT-base with random weights and random tokens. Per algorithm three runs of the same seed, each in a process of its
own: client states on the device; in host memory and in a memory-mapped file, with at most `--limit` GB of device
memory (torch.cuda.set_per_process_memory_fraction). On a CPU: in memory and in a file, without a limit.

`peak` is torch's on CUDA, without the CUDA context, and the largest resident set on a CPU.
--layers 2 --width 64 --vocabulary 1000 --rounds 4 is a quick check.
"""

import argparse
import hashlib
import json
import resource
import subprocess
import sys
from unittest import mock

import torch
from engine import Silent
from rich.console import Console
from rich.table import Table
from torch import nn

import fedsum
from fedsum.engine.bank import blocks
from fedsum.tasks.transformer import SentenceClassifier

CLIENTS, ACTIVE, K, BATCH, LENGTH, SAMPLES = 8, 2, 3, 4, 64, 64
PLACES = {"cuda": ("device", "host", "file"), "cpu": ("host", "file")}


def task(layers, width, vocabulary):
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=max(1, width // 64),
    )
    config._attn_implementation = "eager"
    draw = torch.Generator().manual_seed(0)
    data = [
        (
            torch.randint(1, vocabulary + 1, (SAMPLES, LENGTH), generator=draw),
            torch.randint(0, 2, (SAMPLES,), generator=draw),
        )
        for _ in range(CLIENTS)
    ]
    return Silent(
        lambda: SentenceClassifier(BertModel(config), width, classes=2, dropout=0.1), nn.functional.cross_entropy, data
    )


def measure(arguments):
    """One run, in this process."""
    algorithm, place = arguments.one
    cuda = arguments.device == "cuda"
    if cuda and place != "device":
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(arguments.limit * 1e9 / total)
    if place == "file":
        mock.patch.object(blocks, "host_memory_free", return_value=0.0).start()
    history = fedsum.simulate(
        task(arguments.layers, arguments.width, arguments.vocabulary),
        getattr(fedsum, algorithm)(),
        fedsum.Uniform(CLIENTS, ACTIVE),
        rounds=arguments.rounds,
        local_steps=K,
        batch_size=BATCH,
        eta_l=1e-4,
        eval_every=max(1, arguments.rounds // 2),
        engine=arguments.engine,
        device=arguments.device,
        precision=arguments.precision if cuda else "fp32",
        deterministic=arguments.deterministic,
    )
    last, half = history.rows[-1], history.rows[-2]  # the second half: compilation happens in the first one
    kinds = sorted({"outside the device" if block.offloaded else "here" for block in history.clients._blocks})
    peak = torch.cuda.max_memory_reserved() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "parameters": len(history.x),
        "states": ", ".join(kinds),
        "ms": (last["seconds"] - half["seconds"]) / (last["round"] - half["round"]) * 1e3,
        "peak_gb": peak / 1e9,
        "allocated_gb": torch.cuda.max_memory_allocated() / 1e9 if cuda else None,
        "model": hashlib.sha256(history.x.cpu().numpy().tobytes()).hexdigest()[:12],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=8.0, help="GB of device memory for states outside it")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=PLACES)
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--deterministic", action="store_true", help="then all places must give the same model")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--vocabulary", type=int, default=30_522)
    parser.add_argument("--out", help="write the numbers here as JSON")
    parser.add_argument("--one", nargs=2, metavar=("ALGORITHM", "PLACE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments)))
        return
    results = {}
    for algorithm in ("FedSUM", "FedSUMCR"):
        for place in PLACES[arguments.device]:
            command = [sys.executable, *sys.argv, "--one", algorithm, place]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            line = done.stdout.splitlines()[-1] if done.returncode == 0 else json.dumps({"failed": done.returncode})
            results[f"{algorithm}, {place}"] = json.loads(line)
            print(algorithm, place, line, flush=True)
    table = Table(title=f"Client states of {ACTIVE} of {CLIENTS} clients, engine {arguments.engine}")
    for head in ("run", "states", "ms per round", "peak GB", "model"):
        table.add_column(head, justify="right")
    for name, row in results.items():
        if "failed" in row:
            table.add_row(name, "failed", "", "", "")
        else:
            table.add_row(name, row["states"], f"{row['ms']:.1f}", f"{row['peak_gb']:.2f}", row["model"])
    Console(width=100).print(table)
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
