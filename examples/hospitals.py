"""Hospitals in one CSV file, compared by AUC.

    python examples/hospitals.py [FOLDER]

Twenty hospitals share a table with one row per patient. Some hospitals seldom take part. The script writes such a table
(with your own data, skip `write_table`), trains three algorithms with three seeds, and compares them by AUC.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import roc_auc_score

import fedsum

HOSPITALS = 20


def write_table(path):
    """Patients with four measurements. Hospitals differ in their patients and in how often y = 1."""
    draw = np.random.default_rng(0)
    frames = []
    for hospital in range(HOSPITALS):
        shift, patients = draw.normal(0, 1.0, 4), int(draw.integers(20, 200))
        x = draw.normal(shift, 1.0, (patients, 4))
        risk = x @ [1.0, -2.0, 0.5, 0.0] + 0.5 * x[:, 0] * x[:, 1] + draw.normal(0, 1.0, patients)
        columns = {"age": x[:, 0], "pressure": x[:, 1], "sugar": x[:, 2], "height": x[:, 3]}
        frames.append(pd.DataFrame({"hospital": f"h{hospital:02}", **columns, "y": (risk > 0).astype(int)}))
    pd.concat(frames).to_csv(path, index=False)


def auc(outputs, targets):
    return roc_auc_score(targets, outputs[:, 1] - outputs[:, 0])


def make_task(path):
    """The task: a quarter of the patients are the test set, the others stay in their hospitals."""
    frame = pd.read_csv(path)
    held_out = frame.sample(frac=0.25, random_state=0)
    features = ["age", "pressure", "sugar", "height"]
    # Columns of similar size: networks hardly learn from raw columns of very different sizes.
    frame[features] = (frame[features] - frame[features].mean()) / frame[features].std()
    held_out = frame.loc[held_out.index]
    test = (torch.tensor(held_out[features].to_numpy("float32")), torch.tensor(held_out["y"].to_numpy()))
    return fedsum.tasks.Task(
        lambda: torch.nn.Sequential(torch.nn.Linear(len(features), 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)),
        torch.nn.functional.cross_entropy,
        fedsum.tasks.by_client(frame.drop(held_out.index), client="hospital", target="y", features=features),
        test,
        weights="samples",  # every patient counts the same, as in the AUC of all test patients below
        metrics={"auc": fedsum.Metric(auc, better="higher")},
    )


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / "hospitals.csv")
    task = make_task(folder / "hospitals.csv")
    schedule = fedsum.Biased(task.n, group=2)  # active with probability 0.5 down to 0.05
    # FedSUM needs smaller rates than FedAvg; `fedsum delays` and `fedsum tune` find them.
    algorithms = {fedsum.FedSUM(): 0.1, fedsum.SCAFFOLD(): 0.1, fedsum.FedAvg(): 0.2}
    options = {"rounds": 40, "local_steps": 5, "batch_size": 16}
    results = [
        fedsum.simulate(task, algorithm, schedule, eta_l=eta_l, seed=seed, **options)
        for algorithm, eta_l in algorithms.items()
        for seed in range(3)
    ]
    comparison = fedsum.compare(*results, by="test_auc")
    print(comparison)
    comparison.plot().savefig(folder / "auc.png")
    return comparison


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "hospitals"))
