"""Do the rates of `fedsum tune` and of `fedsum delays` train as well as the best rate of a full grid?

python benchmarks/rates.py [--jobs 2] [--rounds 240] [--seeds 2] [--out results.json] [--folder FOLDER]

Handwritten digits on 100 clients, Dirichlet(0.1), under a recorded trace: every fifth of the 512 phones in
$FEDSUM_DATA/traces/phones.csv, 241 half hours. FedSUM, SCAFFOLD and FedAvg. Values are the test accuracy,
a mean over the last 50 rounds and over seeds. Ten minutes on two cores.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

import fedsum
from fedsum.base.metrics import final_value

CLIENTS = 100
ALGORITHMS = ("FedSUM", "SCAFFOLD", "FedAvg")
RATES = [0.01 * 2**power for power in range(8)]
BY = "test_accuracy"


def write_trace(path):
    """Every fifth phone, as clients 0 to 99."""
    with open(Path(os.environ["FEDSUM_DATA"]) / "traces/phones.csv") as file:
        rows = list(csv.DictReader(file))
    phones = sorted({int(row["client"]) for row in rows})[::5][:CLIENTS]
    numbers = {str(phone): number for number, phone in enumerate(phones)}
    lines = [f"{row['round']},{numbers[row['client']]}" for row in rows if row["client"] in numbers]
    path.write_text("\n".join(["round,client", *lines]) + "\n")


def command(folder, *arguments):
    """Runs fedsum, and returns its JSON."""
    line = [sys.executable, "-m", "fedsum", *map(str, arguments), "--json"]
    return json.loads(subprocess.run(line, check=True, cwd=folder, stdout=subprocess.PIPE, text=True).stdout)


def accuracies(folder):
    """Per algorithm and rate, the final accuracy, a mean over seeds; 0 for a diverged run."""
    values = {}
    for run in fedsum.read_runs(folder):
        key = run.config["algorithm"]["name"], run.config["eta_l"]
        accuracy = final_value({int(row["round"]): row[BY] for row in run.rows}) if run.state == "finished" else 0.0
        values.setdefault(key, []).append(accuracy)
    return {key: sum(found) / len(found) for key, found in values.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=240)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", help="write the numbers here as JSON")
    parser.add_argument("--folder", help="keep the runs here, and continue them")
    arguments = parser.parse_args()
    folder = Path(arguments.folder or tempfile.mkdtemp()).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    write_trace(folder / "phones.csv")
    base = f"""
rounds = {arguments.rounds}
local_steps = 10
batch_size = 32
eta_l = 0.05
task = {{name = "digits", clients = {CLIENTS}, alpha = 0.1}}
schedule = {{name = "Trace", path = "phones.csv", clients = {CLIENTS}}}
"""
    sweep = f"[sweep]\nalgorithm = {json.dumps(ALGORITHMS)}\n"
    seeds = f"seed = {list(range(arguments.seeds))}\n"
    (folder / "one.toml").write_text(base + 'algorithm = "FedSUM"\n')
    (folder / "tune.toml").write_text(base + sweep + seeds)
    (folder / "grid.toml").write_text(base + sweep + f"eta_l = {json.dumps(RATES)}\n" + seeds)

    measured = command(folder, "delays", "phones.csv", "--n", CLIENTS, "--task", "one.toml")
    advised = {label: measured["advice"][label]["eta_l"] for label in ALGORITHMS}
    search = command(folder, "tune", "tune.toml", "--jobs", arguments.jobs)["best"]
    tuned = {label: best["settings"]["eta_l"] for label, best in search.items()}
    pairs = [[label, rates[label]] for rates in (advised, tuned) for label in ALGORITHMS]
    worst_case = [[label, measured["eta_l"]] for label in ALGORITHMS]
    for name, rows, eta_g in (("chosen", pairs, 1.0), ("worst-case", worst_case, measured["eta_g"])):
        text = f'eta_g = {eta_g}\n{base}[sweep]\n"algorithm, eta_l" = {json.dumps(rows)}\n{seeds}'
        (folder / f"{name}.toml").write_text(text)
        command(folder, "run", f"{name}.toml", "--jobs", arguments.jobs)
    command(folder, "run", "grid.toml", "--jobs", arguments.jobs)

    grid, chosen, worst = (accuracies(folder / "runs" / name) for name in ("grid", "chosen", "worst-case"))
    rows = []
    for label in ALGORITHMS:
        of_grid = {rate: value for (algorithm, rate), value in grid.items() if algorithm == label}
        best = max(of_grid, key=of_grid.get)
        row = {"algorithm": label, "best_of_grid": {"eta_l": best, BY: of_grid[best]}}
        for name, rates in (("tune", tuned), ("delays", advised)):
            row[name] = {"eta_l": rates[label], BY: chosen[label, rates[label]]}
        row["theorem_1"] = {"eta_l": measured["eta_l"], "eta_g": measured["eta_g"], BY: worst[label, measured["eta_l"]]}
        rows.append(row | {"grid": {str(rate): of_grid[rate] for rate in sorted(of_grid)}})
    table = Table(title=f"Test accuracy, {arguments.rounds} rounds of a recorded trace (in brackets: eta_l)")
    for head in ("algorithm", "best of the grid", "fedsum tune", "fedsum delays", "Theorem 1 (worst case)"):
        table.add_column(head)
    for row in rows:
        cells = [row[name] for name in ("best_of_grid", "tune", "delays", "theorem_1")]
        table.add_row(row["algorithm"], *(f"{cell[BY]:.1%} ({cell['eta_l']:.3g})" for cell in cells))
    Console().print(table)
    if arguments.out:
        constants = {name: measured[name] for name in ("L", "L_mean_loss", "active_mean", "tau_max", "tau_avg")}
        Path(arguments.out).write_text(
            json.dumps({"rounds": arguments.rounds, "seeds": arguments.seeds, **constants, "rows": rows}, indent=1)
        )


if __name__ == "__main__":
    main()
