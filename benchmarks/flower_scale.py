"""Many SuperNodes on one machine, with nodes killed at random; and a large model over a slow link.

python benchmarks/flower_scale.py nodes [--nodes 100] [--rounds 12] [--out benchmarks/results/flower_nodes.json]
python benchmarks/flower_scale.py link [--mbit 80] [--out benchmarks/results/flower_link.json]

`nodes`: as many SuperNodes as fit into memory, with TLS and authentication. Ten clients are asked per round; after a
third of the rounds, ten SuperNodes are killed. Reports seconds per round, memory per SuperNode, and
||y - sum h_i|| / ||y||.

`link`: runs itself in a network namespace that has only `lo`, shaped by `tc tbf` (needs root). One client with a model
of 100 MB, first with a deadline that its messages fit in, then with one that they do not fit in.
"""

import argparse
import csv
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from flower_net import Net, wait_for

from fedsum.flower import deployment_status
from fedsum.flower.certs import write_certs

ASKED, KILLED, FIRST = 10, 10, 5
RESERVE_GB, LEAST_GB = 6.0, 3.0
"""memory that is left free when the number of nodes is chosen, and below which everything is stopped"""
APP_GB, SERVER_GB = 0.5, 1.0
"""of a client app while it works, and of the server app"""


class MemoryGuard(threading.Thread):
    """Kills the processes of a net if the machine's memory runs low, whatever the main thread waits for."""

    def __init__(self, net):
        super().__init__(daemon=True)
        self.net, self.low, self.least = net, False, available_gb()
        self.start()

    def run(self):
        while not self.low:
            free = available_gb()
            self.least, self.low = min(self.least, free), free < LEAST_GB
            time.sleep(0.2)
        for process in list(self.net.processes.values()):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def check(self):
        if self.low:
            sys.exit(f"less than {LEAST_GB:g} GB of memory was free: all processes of this benchmark are stopped")


def memory_mb(group):
    """Proportional memory of all processes in a process group, in MB; shared pages count once."""
    total = 0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(path.name)) == group:
                text = (path / "smaps_rollup").read_text()
                total += int(re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)[1])
        except (OSError, TypeError):
            continue  # it has ended
    return total / 1000


def available_gb():
    return int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) / 1e6


def rounds_of(folder):
    """(round, merged, asked, seconds) of each merged round in the log."""
    if not (folder / "log").exists():
        return []
    pattern = re.compile(r"round (\d+)/\d+: merged (\d+) of (\d+) clients .*?([\d.]+) s(?:;|$)")
    lines = (folder / "log").read_text().splitlines()
    return [tuple(map(float, match.groups())) for line in lines if (match := pattern.search(line))]


def start_nodes(net, args, guard):
    """Starts as many SuperNodes as fit into memory, `args.nodes` at most. Returns their number and the MB of each."""
    wanted, started = min(FIRST, args.nodes), 0
    while started < wanted:
        guard.check()
        net.flwr("supernode", "register", str(net.certs / f"client-{started}.pub"), "test")
        key = f"--auth-supernode-private-key={net.certs / f'client-{started}.key'}"
        net.supernode(started, key, config=f'state="{net.state}"')
        started += 1
        if started == FIRST:
            time.sleep(20)  # all their processes are running then
            mb = statistics.median(memory_mb(net.processes[f"supernode-{i}"].pid) for i in range(started))
            room = available_gb() - args.reserve_gb - ASKED * APP_GB - SERVER_GB
            wanted = min(args.nodes, started + max(0, int(1000 * room / mb)))
            print(f"{mb:.0f} MB per SuperNode, {available_gb():.1f} GB free: {wanted} SuperNodes fit", flush=True)
    time.sleep(20)
    return started, [memory_mb(net.processes[f"supernode-{i}"].pid) for i in range(started)]


def written_keys(folder, clients):
    """A file with the keys of the first clients."""
    keys = [(folder / "certs" / f"client-{i}.pub").read_text().strip() for i in range(clients)]
    path = folder / "keys.toml"
    path.write_text("[clients]\n" + "".join(f'{i} = "{key}"\n' for i, key in enumerate(keys)))
    return path


def nodes(args):
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        # With keys, the server knows each SuperNode's client. Otherwise all nodes would start an app at once to say it.
        write_certs(folder / "certs", args.nodes, ["127.0.0.1"])
        with Net(folder, certs=folder / "certs") as net:
            net.environment["FLWR_SUPEREXEC_TASK_POLL_INTERVAL"] = "3"  # Flower's default: 100 nodes poll
            free, guard = available_gb(), MemoryGuard(net)
            net.superlink("--enable-supernode-auth")
            began = time.monotonic()
            started, sizes = start_nodes(net, args, guard)
            start_seconds = time.monotonic() - began
            print(f"{started} nodes started in {start_seconds:.0f} s", flush=True)
            trace = folder / "trace.csv"
            chosen = [(t, i) for t in range(args.rounds) for i in sorted(draw.sample(range(started), ASKED))]
            trace.write_text("round,client\n" + "".join(f"{t},{i}\n" for t, i in chosen))
            config = {"clients": started, "rounds": args.rounds, "deadline": args.deadline, "grace": args.grace}
            config |= {"quorum": 5, "on-loss": "table", "client-keys": str(written_keys(folder, started))}
            config |= {"schedule.name": "trace", "schedule.path": str(trace)}
            run = net.run(**config)
            wait_for((run / "log").exists, 120, "the server app")

            def done(rounds):
                guard.check()
                return len(rounds_of(run)) >= rounds

            wait_for(lambda: done(args.rounds // 3), 1800, "a third of the rounds")
            killed_at = len(rounds_of(run))
            killed = draw.sample(range(started), min(KILLED, started // 3))
            for i in killed:
                net.stop(f"supernode-{i}")
            print(f"killed after round {killed_at}: {sorted(killed)}", flush=True)
            wait_for(lambda: done(args.rounds), 3600, "all rounds")
            net.finished(run, 60)
            rows, clients = rounds_of(run), deployment_status(run).clients
            with (run / "metrics.csv").open() as file:
                drift = max(float(row["drift"]) for row in csv.DictReader(file))
            print((run / "log").read_text(), flush=True)
    before = [seconds for t, _, _, seconds in rows if t <= killed_at]
    after = [seconds for t, _, _, seconds in rows if t > killed_at]
    return {
        "nodes": started,
        "asked per round": ASKED,
        "rounds": args.rounds,
        "MB per SuperNode, median": round(statistics.median(sizes)),
        "MB per SuperNode, largest": round(max(sizes)),
        "GB for all SuperNodes": round(sum(sizes) / 1000, 1),
        "GB free before": round(free, 1),
        "GB free, least": round(guard.least, 1),
        "seconds to register and start all": round(start_seconds),
        "seconds per round, median": round(statistics.median(before), 1),
        "killed": len(killed),
        "killed after round": killed_at,
        "seconds per round after the kill, median": round(statistics.median(after), 1),
        "seconds per round after the kill, longest": round(max(after), 1),
        "deadline, grace": [args.deadline, args.grace],
        "clients merged per round": statistics.mean(merged for t, merged, *_ in rows if t <= killed_at),
        "clients merged per round after the kill": statistics.mean(merged for t, merged, *_ in rows if t > killed_at),
        "faults": dict(sum((Counter(row["faults"]) for row in clients), Counter())),
        "faults of clients that were not killed": sum(
            sum(row["faults"].values()) for row in clients if row["client"] not in killed
        ),
        "largest drift that the server reports": drift,
        "load average": [round(value, 1) for value in os.getloadavg()],
    }


def link(args):
    if not args.inside:
        command = [sys.executable, __file__, "link", "--inside", "--mbit", str(args.mbit)]
        shaped = f"ip link set lo up && tc qdisc add dev lo root tbf rate {args.mbit}mbit burst 1mb latency 2s"
        done = subprocess.run(
            ["unshare", "-n", "sh", "-c", f"{shaped} && exec {' '.join(command)}"],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        print(done.stdout, end="")
        return json.loads(done.stdout.splitlines()[-1])
    results = {"Mbit/s": args.mbit, "model, MB": 100}
    with tempfile.TemporaryDirectory() as folder, Net(folder) as net:
        net.environment["FEDSUM_TEST_PARAMETERS"] = str(25_000_000)
        net.superlink()
        net.supernode(0)
        wait_for(lambda: "online" in net.flwr("supernode", "ls", "test", "--format", "json"), 120, "the SuperNode")
        for name, deadline in {"fits": 300.0, "does not fit": 20.0}.items():
            config = {"clients": 1, "rounds": 1, "deadline": deadline, "local-steps": 1}
            config["link-speed"] = args.mbit / 8
            began = time.monotonic()
            run = net.run(folder=name.replace(" ", "-"), **config)
            wait_for(lambda run=run: over(run), 900, name)
            log = (run / "log").read_text()
            print(log, flush=True)
            rows = rounds_of(run)
            results[name] = {
                "deadline": deadline,
                "rounds merged": len(rows),
                "seconds per round": [seconds for *_, seconds in rows],
                "seconds in all": round(time.monotonic() - began),
                "log": [line[26:] for line in log.splitlines() if "deadline" in line],
            }
    print(json.dumps(results))
    return results


def over(run):
    """Whether the run has ended, or was refused."""
    status, log = run / "status.toml", run / "log"
    ended = status.exists() and 'state = "running"' not in status.read_text()
    return ended or (log.exists() and "too short" in log.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["nodes", "link"])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--deadline", type=float, default=120.0)
    parser.add_argument("--grace", type=float, default=20.0)
    parser.add_argument("--reserve-gb", type=float, default=RESERVE_GB, help="memory that is left free")
    parser.add_argument("--mbit", type=int, default=80)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that all processes are ended
    results = nodes(args) if args.what == "nodes" else link(args)
    if not args.inside:
        print(json.dumps(results, indent=1))
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
