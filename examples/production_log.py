"""From a log of a production system to learning rates.

    python examples/production_log.py [FOLDER]

The log has one JSON object per line, with a device and a time in milliseconds. The script writes such a log (with your
own log, skip `write_log`), measures the participation in it, and asks `fedsum delays` for rates. On the command line:

    fedsum delays log.jsonl.gz --client-column device --time-column at --round-length 1800 --n 40 --task digits
"""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

import fedsum

DEVICES, SEEN, ROUNDS, ROUND_LENGTH = 40, 35, 60, 1800


def write_log(path):
    """Devices report more often at night. Five of the forty devices never do."""
    draw = np.random.default_rng(0)
    start = 1_700_000_000
    events = []
    for half_hour in range(ROUNDS):
        night = 0.6 + 0.4 * np.cos(2 * np.pi * half_hour / 48)
        for device in np.flatnonzero(draw.random(SEEN) < 0.3 * night):
            at = 1000 * (start + ROUND_LENGTH * half_hour + draw.integers(ROUND_LENGTH))
            events.append({"at": int(at), "device": f"device-{device:03}", "battery": int(draw.integers(101))})
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.jsonl.gz"
    write_log(log)
    columns = ["--client-column", "device", "--time-column", "at", "--round-length", str(ROUND_LENGTH)]
    options = [*columns, "--n", str(DEVICES), "--task", "digits", "--out", str(folder / "delays.png")]
    command = [sys.executable, "-m", "fedsum", "delays", str(log), *options, "--json"]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    print(f"{found['active_mean']:.1f} of {found['clients']} devices per round, tau_max = {found['tau_max']}")
    rates = {label: round(found["advice"][label]["eta_l"], 4) for label in ("FedSUM", "FedAvg")}
    print("rates to start with:", rates)
    schedule = fedsum.Trace.read(
        log, client_column="device", time_column="at", round_length=ROUND_LENGTH, clients=DEVICES, repeat=True
    )
    task = fedsum.tasks.vision("digits", clients=DEVICES)
    options = {"rounds": 60, "local_steps": 10, "eta_l": rates["FedSUM"], "batch_size": 32}
    history = fedsum.simulate(task, fedsum.FedSUM(), schedule, **options)
    print("accuracy", round(history.rows[-1]["test_accuracy"], 3))
    return found, history


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "production"))
