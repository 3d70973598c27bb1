"""Start a peer's harness and have it run rounds when it is asked to.

with Rival("flower", "mnist.npz") as flower:         # returns after its warm-up
    print([row["seconds"] for row in flower.run(3)])
    print(flower.finish())                           # how far the model moved
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

from environments import FOLDER, HERE, ensure

# glibc gives freed memory back to the system and faults it in again at every step: up to 30% of a round. A driver
# that compares fedsum with these should start it with the same.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}

# No telemetry, update checks or usage reports; the namespace would not let them out either.
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}

SETTINGS = {"OMP_NUM_THREADS": "1", **ALLOCATOR, **QUIET}


def command(peer: str, workload: Any, warmup: int, folder: Path = FOLDER) -> list[str]:
    """The command line of a harness, in a network of loopback alone.

    A process (pfl) or an actor (Flower) a core, with one thread each, rather than one with two threads: README.md has
    the comparison. torchrun and Ray would set OMP_NUM_THREADS so themselves.
    """
    harness = [HERE / f"{peer}_rounds.py", Path(workload).resolve(), "--warmup", warmup]
    if peer == "fedsum":  # in this very environment; it opens no connection
        return [str(word) for word in (sys.executable, *harness)]
    programs = ensure(peer, folder)
    launchers = {
        "pfl": [
            programs / "torchrun",
            "--standalone",
            "--nnodes=1",
            f"--nproc_per_node={len(os.sched_getaffinity(0))}",
        ],
        "flower": [programs / "python"],
    }
    alone = ["unshare", "-n" if os.geteuid() == 0 else "-rn", sys.executable, HERE / "loopback.py"]
    return [str(word) for word in (*alone, *launchers[peer], *harness)]


class Rival:
    """A running harness. `log` is a file for what it says on stderr."""

    def __init__(self, peer: str, workload: Any, warmup: int = 2, folder: Path = FOLDER, log: Any = None) -> None:
        self.peer, words = peer, command(peer, workload, warmup, folder)
        # Under /tmp, for Ray's sockets there must have short names.
        self.scratch = tempfile.mkdtemp(prefix="peer", dir="/tmp")
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **SETTINGS, "TMPDIR": self.scratch, "FLWR_HOME": self.scratch},
            start_new_session=True,  # its process group holds all that it starts, Ray's servers too
        )
        try:
            self.read("ready")
            self.pause()
        except BaseException:
            self.close()
            raise

    def read(self, key: str) -> dict[str, Any]:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self.process.args)} ended before its {key!r} line; see its stderr")
        facts = json.loads(line)
        if key not in facts:
            raise RuntimeError(f"expected a {key!r} line, got {line!r}")
        return facts

    def run(self, rounds: int) -> list[dict[str, Any]]:
        """For each round: `seconds`, the `clients` that trained and the local `steps` that they did together."""
        self.signal(signal.SIGCONT)
        self.process.stdin.write(f"go {rounds}\n")
        self.process.stdin.flush()
        rows = [self.read("round") for _ in range(rounds)]
        self.pause()
        return rows

    def pause(self) -> None:
        """Stop it until the next rounds. Flower's simulation looks into every client's mailbox ten times a second
        even while it waits: with 1000 clients 8% of a core, out of somebody else's rounds. pfl just sleeps."""
        if self.peer == "flower":
            self.signal(signal.SIGSTOP)

    def finish(self) -> dict[str, Any]:
        """End it well: `mean_change` of the weights, `loss_before`, `loss_after`."""
        self.signal(signal.SIGCONT)
        self.process.stdin.close()
        facts = self.read("done")
        self.process.wait(60)
        return facts

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def close(self) -> None:
        """End it now, and all that it has started."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.signal(signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def main() -> None:
    """python rivals.py WORKLOAD.npz...: three rounds of each in each peer, turn by turn."""
    for path in map(Path, sys.argv[1:]):
        with Rival("pfl", path) as pfl, Rival("flower", path) as flower:
            for _ in range(3):
                print(path.stem, "pfl", *pfl.run(1), "flower", *flower.run(1), flush=True)
            print(path.stem, "pfl", pfl.finish(), "flower", flower.finish(), flush=True)


if __name__ == "__main__":
    main()
