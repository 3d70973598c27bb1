"""Small sweep folders in the layout that `fedsum` writes, for tests that read them."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

import fedsum

ALGORITHMS = ("FedSUM", "FedSUMCR", "FedAvg", "SCAFFOLD")
SCHEDULES = {
    "Uniform": {"n": 20, "size": 4},
    "Independent": {"n": 20, "p": 0.2},
    "Biased": {"n": 20, "group": 2},
}
ROUNDS = 40
TOP = {
    "rounds": ROUNDS,
    "local_steps": 5,
    "eta_l": {"name": "InverseSqrt", "eta_0": 0.1, "over": 10.0},
    "eta_g": 1.0,
    "batch_size": 16,
    "seed": 0,
    "eval_every": 4,
    "eval_last": 10,
    "dtype": "float32",
}
TASK = {"name": "digits", "clients": 20, "alpha": 0.1}
COMMAND = "fedsum sweep a.toml && echo '<b>done</b>'"


def toml(config):
    """A TOML writer for configurations: numbers, strings, lists and tables, not nested."""
    plain = [f"{key} = {_value(value)}" for key, value in config.items() if key in TOP or not isinstance(value, dict)]
    tables = [(key, value) for key, value in config.items() if key not in TOP and isinstance(value, dict)]
    for name, table in tables:
        plain += ["", f"[{name}]", *(f"{key} = {_value(value)}" for key, value in table.items())]
    return "\n".join(plain) + "\n"


def _value(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


def write_run(folder: Path, config, metrics, state="finished", round=None, reason=""):
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(toml(config))
    metrics.to_csv(folder / "metrics.csv", index=False)
    status = {"state": state, "round": int(metrics["round"].max() if round is None else round), "reason": reason}
    (folder / "status.toml").write_text(toml(status))


def configured(algorithm="FedSUM", schedule="Uniform", fields=None, **changes):
    """A whole config.toml as a dict."""
    top = TOP | {key: value for key, value in changes.items() if key != "task"}
    return top | {
        "task": changes.get("task", TASK),
        "algorithm": {"name": algorithm},
        "schedule": {"name": schedule, **(SCHEDULES[schedule] if fields is None else fields)},
        "how": {"engine": "loop", "device": "cpu"},
        "environment": {"fedsum": fedsum.__version__, "command": COMMAND, "started": "2026-01-01T00:00:00"},
    }


def measured(config):
    """Metrics of a run: active clients, delays and traffic are real, the curves are made up."""
    name, seed, T = config["algorithm"]["name"], config["seed"], config["rounds"]
    fields = {key: value for key, value in config["schedule"].items() if key != "name"}
    schedule = getattr(fedsum, config["schedule"]["name"])(**fields)
    vectors, floor, noise = {"FedSUM": (3, 0.2, 0.01), "SCAFFOLD": (3, 0.25, 0.01)}.get(name, (2, 0.4, 0.06))
    tau = fedsum.delays(schedule, T, seed=seed).tau
    sent = np.cumsum([vectors * len(schedule.active(seed, t)) for t in range(T)])
    draw = np.random.default_rng([seed, *config["schedule"]["name"].encode(), *name.encode()])
    rows = []
    for done in range(T + 1):
        loss = floor + (2.3 - floor) * np.exp(-0.1 * done) * draw.lognormal(0, noise)
        if done % config["eval_every"] and done < T - config["eval_last"]:
            continue
        accuracy = 0.1 + 0.9 * (1 - loss / 2.5) ** 1.5 if loss < 2.5 else 0.1
        traffic = int(sent[done - 1]) if done else 0
        rows.append(
            {
                "round": done,
                "train_loss": loss,
                "test_loss": 1.1 * loss,
                "test_accuracy": accuracy,
                "communication": traffic,
                "bytes": traffic * 4810 * 4,
                "tau": int(tau[done - 1]) if done else 0,
                "seconds": 0.0123456789 * done,
                "eval_seconds": 0.001 * done,
            }
        )
    return pd.DataFrame(rows)


def write_sweep(folder: Path, algorithms=ALGORITHMS, schedules=tuple(SCHEDULES), seeds=(0, 1), rounds=ROUNDS):
    """Every algorithm under every schedule. Of the last algorithm, the last seeds diverged, stopped or are missing."""
    for algorithm in algorithms:
        for schedule in schedules:
            for seed in seeds:
                config = configured(algorithm, schedule, seed=seed, rounds=rounds)
                metrics, place = measured(config), folder / f"{algorithm}-{schedule}-{seed}"
                if (algorithm, seed) != (algorithms[-1], seeds[-1]) or len(seeds) == 1:
                    write_run(place, config, metrics)
                elif schedule == schedules[0]:
                    write_run(place, config, metrics[:4], "diverged", 13, "train loss is inf <i>in</i> round 13")
                elif schedule == schedules[1]:
                    write_run(place, config, metrics[:7], "stopped", 25, "interrupted")
