"""The edge of stability of a network trained by FedSUM, under several participation patterns.

python benchmarks/edge.py [--rounds 1500] [--data FILE.json] [--figure FILE.png]

Handwritten digits, 50 clients with few labels each, ten active clients per round, a small tanh network with squared
errors. The curvature of its loss grows during training until it reaches the stability limit of the step size. The
figure shows eta_g eta_l K times the largest curvature, beside the stability limits on parabolas of docs/theory.md. Six
minutes on one core.
"""

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits
from stability import predicted
from torch import nn

import fedsum
from fedsum.tasks import Task, partition

N, ACTIVE, K, BATCH, EVERY = 50, 10, 10, 32, 25
RATES = (0.01, 0.04)
PATTERNS = {
    "all clients": fedsum.Uniform(N, N),
    "uniform, a fifth": fedsum.Uniform(N, ACTIVE),
    "cyclic, a fifth": fedsum.Cyclic(N, ACTIVE),
    "reshuffled, a fifth": fedsum.Reshuffled(N, ACTIVE),
}
ITERATIONS = 40


def squared_error(outputs, labels):
    return 0.5 * ((outputs - torch.eye(10)[labels]) ** 2).sum(-1).mean()


def network():
    return nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))


class Curvature(Task):
    """Digits, evaluated by the largest eigenvalue of the Hessian of f = (1/N) sum f_i, by power iteration."""

    def __init__(self):
        digits = load_digits()
        pixels = torch.tensor(digits.data, dtype=torch.float32)
        self.all = (pixels - pixels.mean()) / pixels.std(), torch.tensor(digits.target)
        self.parts = [torch.as_tensor(p) for p in partition.dirichlet(digits.target, N, 0.1, refill=True).parts]
        super().__init__(network, squared_error, [(self.all[0][part], self.all[1][part]) for part in self.parts])

    def evaluate(self, x):
        module = self.model(x)
        weights = list(module.parameters())
        outputs, labels = module(self.all[0]), self.all[1]
        loss = sum(squared_error(outputs[part], labels[part]) for part in self.parts) / N
        metrics = {"train_loss": loss.item()}
        if not torch.isfinite(loss):
            return metrics
        gradient = torch.autograd.grad(loss, weights, create_graph=True)
        draw = torch.Generator().manual_seed(0)
        v = [torch.randn(w.shape, generator=draw) for w in weights]
        for _ in range(ITERATIONS):
            length = torch.sqrt(sum((part**2).sum() for part in v))
            v = [part / length for part in v]
            product = torch.autograd.grad(gradient, weights, v, retain_graph=True)
            curvature = float(sum((a * b).sum() for a, b in zip(product, v, strict=True)))
            v = [part.detach() for part in product]
        return metrics | {"curvature": curvature}


def draw(results, path):
    from matplotlib import pyplot as plt

    limits = {row["limit"]: (row["pattern"].split(",")[0], "bottom") for row in results if row["limit"]}
    limits[min(limits)] = limits[min(limits)][0], "top"  # the labels of two close limits must not overlap
    figure, panels = plt.subplots(1, len(RATES), figsize=(7, 3.8), sharey=True, layout="constrained")
    for panel, rate in zip(panels, RATES, strict=True):
        for colour, style, name in zip(
            ("#0072b2", "#e69f00", "#009e73", "#d55e00"), ("-", "--", ":", "-."), PATTERNS, strict=True
        ):
            row = next(row for row in results if (row["rate"], row["pattern"]) == (rate, name))
            panel.plot(row["rounds"], row["edge"], style, color=colour, label=name, lw=1.8)
        for limit, (name, side) in limits.items():
            panel.axhline(limit, color="0.6", lw=0.8, zorder=0)
            place = {"xytext": (3, 0), "textcoords": "offset points", "va": side, "fontsize": 7, "color": "0.3"}
            panel.annotate(f"{limit:.2f} {name}", (1, limit), xycoords=("axes fraction", "data"), **place)
        panel.set(title=f"$\\eta_g\\eta_l K$ = {rate * K:g}", xlabel="round", yscale="log", yticks=(1, 2, 5, 10))
        panel.set_yticklabels(("1", "2", "5", "10"))
        panel.minorticks_off()
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("$\\eta_g\\eta_l K$ times sharpness")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1500)
    parser.add_argument("--data", type=Path, help="write the curves to this JSON file")
    parser.add_argument("--figure", type=Path, help="draw the curves into this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the matrices are small
    warnings.filterwarnings("ignore", message=".*diverged")  # the table shows divergence
    task, algorithm, results = Curvature(), fedsum.FedSUM(), []
    with Progress(transient=True) as progress:
        bar = progress.add_task("train", total=len(RATES) * len(PATTERNS) * arguments.rounds)
        for rate in RATES:
            for name, schedule in PATTERNS.items():
                history = fedsum.simulate(
                    task,
                    algorithm,
                    schedule,
                    rounds=arguments.rounds,
                    local_steps=K,
                    eta_l=rate,
                    batch_size=BATCH,
                    eval_every=EVERY,
                    engine="batched",
                    on_round=lambda _: progress.advance(bar),
                )
                rows = history.metrics.dropna(subset=["curvature"])
                edge = (rows["curvature"] * rate * K).tolist()
                row = {"rate": rate, "pattern": name, "limit": predicted(algorithm, schedule, K)[0]}
                results.append(row | {"diverged": history.diverged, "rounds": rows["round"].tolist(), "edge": edge})
    table = Table(title="eta_g eta_l K times the largest curvature, mean over the last third of the rounds")
    for head in ("eta_l", "", "limit on parabolas", "measured"):
        table.add_column(head, justify="left" if not head else "right")
    for row in results:
        last = row["edge"][-len(row["edge"]) // 3 :]
        limit = f"{row['limit']:.2f}" if row["limit"] else ""
        table.add_row(
            str(row["rate"]), row["pattern"], limit, "diverged" if row["diverged"] else f"{np.mean(last):.2f}"
        )
    Console().print(table)
    if arguments.data:
        arguments.data.write_text(json.dumps(results, indent=1))
    if arguments.figure:
        draw(results, arguments.figure)


if __name__ == "__main__":
    main()
