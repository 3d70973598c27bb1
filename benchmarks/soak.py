"""A federation on Flower with a fault every few rounds, over TLS with authentication.

python benchmarks/soak.py [--rounds 100] [--every 3] [--out benchmarks/results/soak.txt]

Real processes on 127.0.0.1: one SuperLink with a database, five SuperNodes. Faults take turns, clients are random. The
script checks that y = sum of all h_i after every round and that no round is longer than deadline plus grace. It
compares the accuracy with the same rounds without faults, from simulate(), which a Flower run without faults equals.
"""

import argparse
import csv
import itertools
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from flower_net import Net, wait_for

from fedsum import FedSUM, Uniform, simulate
from fedsum.flower import make_request, restore_backup, write_backup
from fedsum.flower.certs import write_certs
from fedsum.tasks import Task, vision

N, QUORUM, DEADLINE, GRACE = 5, 3, 40.0, 20.0
IN_CLIENT = (
    *("raise", "kill-after", "nan", f"delay={DEADLINE + 3}", "full", "huge", "delete", "kill-before"),
    *("flip", "chunk", "bomb", "text", "clock"),
)
NODE, SERVER, LINK = "supernode killed", "server app killed between merge and checkpoint", "superlink killed"
DAMAGE, RESTORE, EVICT = "checkpoint damaged", "restored from a backup", "client evicted and readmitted"
OUTSIDE = (NODE, SERVER, LINK, DAMAGE, RESTORE, EVICT)
TERMS = {"local_steps": 5, "eta_l": 0.1, "batch_size": 16, "seed": 0}


def samples(path):
    """Handwritten digits, split so that label distributions differ between clients."""
    whole = vision("digits", clients=N, alpha=0.5)
    assert whole.test_data

    def ready(inputs):
        return whole.prepare(inputs, torch.float32).flatten(1)

    parts = [torch.from_numpy(part) for part in whole.partition.parts]
    data = {"clients": [(ready(whole.inputs[part]), whole.targets[part]) for part in parts]}
    data["test"] = (ready(whole.test_data[0]), whole.test_data[1])
    torch.save(data, path)
    return Task(lambda: nn.Linear(64, 10), nn.functional.cross_entropy, data["clients"], data["test"])


class Soak:
    def __init__(self, net, rounds, every, say):
        self.net, self.rounds, self.say = net, rounds, say
        draw, kinds = random.Random(0), itertools.cycle([*IN_CLIENT, *OUTSIDE])
        self.plan = [(t, draw.randrange(N), next(kinds)) for t in range(2, rounds - 6, every)]
        net.faults(*(fault for fault in self.plan if fault[2] in IN_CLIENT))
        self.outside = [fault for fault in self.plan if fault[2] not in IN_CLIENT]
        self.restarts, self.dying, self.after_kill, self.readmit_after = 0, False, None, None

    def go(self, seconds):
        self.folder = self.run()
        wait_for((self.folder / "status.toml").exists, 300, "the first round")
        until, log = time.monotonic() + seconds, 0
        while not self.finished():
            assert time.monotonic() < until, "the soak did not end"
            time.sleep(0.5)
            log = self.tell(log)
            for name, process in list(self.net.processes.items()):
                if name.startswith("supernode") and process.poll() is not None:
                    time.sleep(2)  # the SuperLink refuses it until its old lease expires, so it is started repeatedly
                    self.supernode(int(name[-1]))
            killed = self.dying and not (self.net.state / "kill-server-in").exists()
            # On an overloaded machine, Flower may take a server app for dead and end its run.
            if killed and self.after_kill:
                self.after_kill()
            if killed or time.time() - (self.folder / "status.toml").stat().st_mtime > 4 * DEADLINE:
                self.say("--- flwr run, again")
                self.again()
            if self.outside and self.done() >= self.outside[0][0] and not self.dying:
                _, client, kind = self.outside.pop(0)
                self.say(f"--- fault: {kind} (client {client} if it is a SuperNode)")
                {
                    NODE: self.kill_node,
                    SERVER: self.kill_app,
                    LINK: self.kill_link,
                    DAMAGE: lambda _: self.kill_app(_, self.damage),
                    RESTORE: self.back_up,
                    EVICT: self.evict,
                }[kind](client)
            if self.readmit_after and self.done() >= self.readmit_after[0]:
                make_request(self.folder, "readmit", self.readmit_after[1])
                self.readmit_after = None
        self.tell(log)

    def happened(self):
        """The kinds of the faults that took place. A client that was not asked in its round had none."""
        inside = [kind for t, client, kind in self.plan if (self.net.state / f"happened-{client}-{t}").exists()]
        return inside + [kind for *_, kind in self.plan if kind in OUTSIDE]

    def run(self):
        keys = str(self.net.certs / "clients.toml")
        config = {"rounds": self.rounds, "deadline": DEADLINE, "clients": N, "client_keys": keys, "eval_every": 10}
        config |= {"quorum": QUORUM, "grace": GRACE}
        terms = {name: value for name, value in TERMS.items() if name != "eta_l"}
        rate = {"eta-l.eta-0": TERMS["eta_l"], "eta-l.over": 1e12}  # constant
        return self.net.run(**config, **terms, **rate)

    def supernode(self, client):
        """Row: a client app is killed before its reply => no reply until the deadline. Flower's SuperNode notices
        after about a minute and accepts orders again.
        """
        self.net.processes.pop(f"supernode-{client}", None)
        key = f"--auth-supernode-private-key={self.net.certs / f'client-{client}.key'}"
        self.net.supernode(client, key, config=f'state="{self.net.state}"')

    def kill_node(self, client):
        """Row: a SuperNode is killed => for about a minute Flower still lists it as online, and rounds wait for it:
        for `grace` seconds after the quorum, or until the deadline. With authentication, Flower refuses its restart for
        the same time: restart it in a loop.
        """
        self.net.stop(f"supernode-{client}")
        self.supernode(client)

    def kill_app(self, _, after=None):
        (self.net.state / "kill-server-in").write_text(str(self.done() + 1))
        self.dying, self.after_kill = True, after

    def damage(self):
        """Row: the server's checkpoint is damaged or missing."""
        path = self.folder / "checkpoint.safetensors"
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    def back_up(self, _):
        """A backup while the server runs. Later the server app is killed, and the backup restored.

        Row: the server is restored from an old backup.
        """
        backup = self.folder.with_name(f"backup-{self.done()}")
        write_backup(self.folder, backup)
        self.kill_app(_, lambda: restore_backup(backup, self.folder))

    def evict(self, client):
        """Row: the operator evicts a client."""
        make_request(self.folder, "evict", client)
        self.readmit_after = self.done() + 2, client

    def kill_link(self, _):
        """Row: the SuperLink is killed => if it was started with `--database`, start it again. SuperNodes
        reconnect by themselves. Then call `flwr run` again.
        """
        self.net.stop("superlink")
        time.sleep(3)
        self.net.superlink("--enable-supernode-auth")
        self.again()

    def again(self):
        self.restarts, self.dying, self.after_kill = self.restarts + 1, False, None
        (self.net.state / "kill-server-in").unlink(missing_ok=True)
        self.run()
        (self.folder / "status.toml").touch()

    def status(self):
        path = self.folder / "status.toml"
        return path.read_text() if path.exists() else ""

    def finished(self):
        return 'state = "finished"' in self.status()

    def done(self):
        match = re.search(r"round = (\d+)", self.status())
        return int(match[1]) if match else 0

    def tell(self, seen):
        path = self.folder / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        for line in lines[min(seen, len(lines)) :]:  # a restored backup has fewer lines
            self.say(line[11:500])
        return len(lines)


def longest_round(lines):
    """The longest merged round by the server's clock, in seconds."""
    seconds = [float(match[1]) for line in lines if (match := re.search(r"up [\d,]+ B, ([\d.]+) s", line))]
    return max(seconds)


def longest_wait(lines):
    """Longest time between two lines of the log, in seconds; restarts of the server app do not count."""
    lines = [line for line in lines if re.match(r"\d\d:\d\d:\d\d", line)]
    times = [datetime.strptime(line[:8], "%H:%M:%S") for line in lines]
    gaps = [(b - a).total_seconds() % 86_400 for a, b in itertools.pairwise(times)]
    restarts = ("resumed after round", "checkpoint", "operator:")
    return max(gap for gap, line in zip(gaps, lines[1:], strict=True) if not any(word in line for word in restarts))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--every", type=int, default=3, help="rounds between faults")
    parser.add_argument("--seconds", type=float, default=5400.0, help="time limit")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    lines = []

    def say(line):
        print(line, flush=True)
        lines.append(line)

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        task = samples(folder / "samples.pt")
        write_certs(folder / "certs", N, ["127.0.0.1"])
        began = time.monotonic()
        with Net(folder, certs=folder / "certs", database=True) as net:
            net.environment["FEDSUM_TEST_DATA"] = str(folder / "samples.pt")
            net.superlink("--enable-supernode-auth")
            for i in range(N):
                net.flwr("supernode", "register", str(folder / "certs" / f"client-{i}.pub"), "test")
            soak = Soak(net, args.rounds, args.every, say)
            for i in range(N):
                soak.supernode(i)
            soak.go(args.seconds)
        took = time.monotonic() - began
        (sums,) = net.state.glob("sums-*.csv")
        with sums.open() as file:
            rows = [(int(t), int(epoch), int(m), float(away)) for t, epoch, m, away in csv.reader(file)]
        with (soak.folder / "metrics.csv").open() as file:
            accuracy = float(list(csv.DictReader(file))[-1]["test_accuracy"])
        wait, longest, happened = longest_wait(lines), longest_round(lines), soak.happened()
    terms = TERMS | {"rounds": args.rounds, "dtype": torch.float64}
    calm = [simulate(task, FedSUM(), Uniform(N, N), **terms | {"seed": seed}) for seed in range(5)]
    without = [run.metrics["test_accuracy"].iloc[-1] for run in calm]
    results = {
        "rounds": args.rounds,
        "faults": {kind: happened.count(kind) for kind in (*IN_CLIENT, *OUTSIDE)},
        "rounds after which y and sum h were compared": len(rows),
        "largest ||y - sum h|| / ||y|| after any round": max(away for *_, away in rows),
        "at the end": rows[-1][3],
        "epochs begun anew": rows[-1][1],
        "server apps started again": soak.restarts,
        "clients merged per round, mean": round(statistics.mean(m for _, _, m, _ in rows), 2),
        f"longest round, s (deadline {DEADLINE:g}, grace {GRACE:g})": longest,
        "longest wait between two lines of the log, s": wait,
        "test accuracy": accuracy,
        "without faults, 5 seeds": [round(float(value), 4) for value in without],
        "minutes": round(took / 60, 1),
        "load average": [round(value, 1) for value in os.getloadavg()],
    }
    say(json.dumps(results, indent=1))
    if args.out:
        args.out.write_text("\n".join(lines) + "\n")
    spread = max(0.03, 3 * (max(without) - min(without)))
    assert max(away for *_, away in rows) <= 1e-6
    # A client whose state is damaged must have said so in nearly all rounds, and in the last one.
    assert len(rows) >= 0.9 * args.rounds
    assert rows[-1][0] == args.rounds
    assert longest <= DEADLINE + GRACE
    assert accuracy >= min(without) - spread


if __name__ == "__main__":
    main()
