"""The cost of per-client evaluation: `evaluate_clients` against `evaluate`, on the same device, in turns.

python benchmarks/per_client.py [--device cuda] [--task mnist] [--repeats 7]
"""

import argparse
import json
import statistics
import time

import torch

import fedsum
from fedsum.engine import arithmetic, client_evaluation, evaluation
from fedsum.tasks import ClientData, Task, partition, vision


def seconds(call, x, device):
    started = time.perf_counter()
    call(x)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started


def with_own_data(task):
    """The same task with the test set divided over the clients, as their own held-out data."""
    inputs, targets = task.test_data
    split = partition.iid(len(targets), task.n, labels=targets)
    return Task(
        task.model(task.init(0)),
        task.loss,
        ClientData(task.inputs, task.targets, task.partition),
        task.test_data,
        client_test_data=ClientData(inputs.clone(), targets.clone(), split),
        prepare=task.prepare,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="mnist")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    device = torch.device(given.device)
    labels = vision(given.task, clients=given.clients, alpha=0.1)
    cases = {"test set weighted by labels": labels, "own held-out data": with_own_data(labels)}
    rows = []
    for name, task in cases.items():
        bound = task.to(device, torch.float32)
        x = bound.init(0)
        with arithmetic(device, given.precision, False):
            calls = {"plain": evaluation(bound), "per client": client_evaluation(bound)}
            for call in calls.values():
                seconds(call, x, device)
            times = {kind: [] for kind in calls}
            for _ in range(given.repeats):  # in turns, so that other load meets both
                for kind, call in calls.items():
                    times[kind].append(seconds(call, x, device))
        middle = {kind: statistics.median(values) for kind, values in times.items()}
        rows.append(
            {
                "clients evaluated on": name,
                "plain, s": round(middle["plain"], 4),
                "per client, s": round(middle["per client"], 4),
                "ratio": round(middle["per client"] / middle["plain"], 3),
            }
        )
        print(rows[-1], flush=True)
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(json.dumps({"task": given.task, "clients": given.clients, "machine": machine, "fedsum": fedsum.__version__}))


if __name__ == "__main__":
    main()
