"""Starts a peer's harness and lets it run rounds on request.

with Rival("flower", "mnist.npz") as flower:         # returns after its warm-up
    print([row["seconds"] for row in flower.run(3)])
    print(flower.finish())                           # how far the model moved
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple, Self

from environments import FOLDER, HERE, ensure

# By default glibc returns freed memory to the system and faults it in again at every step, which takes up to 30% of a
# round. All frameworks get the same settings.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}

# No telemetry, update checks or usage reports; the network namespace would block them anyway.
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}

SETTINGS = {"OMP_NUM_THREADS": "1", **ALLOCATOR, **QUIET}


class Setup(NamedTuple):
    """How the harnesses of all frameworks are started."""

    device: str = "cpu"
    folder: Path = FOLDER
    """the environments of the peers"""
    site: Path | None = None
    """instead of environments: a folder of packages per peer, for the current Python"""
    open_network: bool = False
    """whether peers start even if no network namespace can be made"""
    start_limit: float = 600.0
    """seconds for the start and the warm-up of a harness"""


ON_CPU = Setup()


def cores() -> int:
    return len(os.sched_getaffinity(0))


def isolation(setup: Setup) -> list[Any]:
    """The beginning of a command line that runs the rest in a network namespace with loopback only."""
    unshare = ["unshare", "-n" if os.geteuid() == 0 else "-rn"]
    if shutil.which("unshare") and subprocess.run([*unshare, "true"], capture_output=True).returncode == 0:
        return [*unshare, sys.executable, HERE / "loopback.py"]
    if not setup.open_network:
        sys.exit(
            "peers: no network namespace can be made here (unshare -n), and torchrun and Ray listen on every network"
            " interface; on a machine that nobody else reaches, add --open-network"
        )
    return []


def command(peer: str, workload: Any, warmup: int, setup: Setup, processes: int) -> list[str]:
    """The command line of a harness, in a network namespace with loopback only.

    `processes` are pfl's processes or Flower's actors, with one thread each: README.md compares two of them with one
    process of two threads. torchrun and Ray would set OMP_NUM_THREADS to the same value.
    """
    harness = [HERE / f"{peer}_rounds.py", Path(workload).resolve(), "--warmup", warmup, "--device", setup.device]
    if peer == "fedsum":  # uses the current environment, and no network
        return [str(word) for word in (sys.executable, *harness)]
    python = sys.executable if setup.site else ensure(peer, setup.folder) / "python"
    launcher: list[Any] = [python]
    if peer == "flower":
        harness += ["--actors", processes]
    elif processes > 1 or setup.device == "cpu":
        # As --standalone does, but on 127.0.0.1 instead of the machine's name.
        loopback = ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
        launcher += ["-m", "torch.distributed.run", *loopback, "--nnodes=1", f"--nproc-per-node={processes}"]
        launcher += [HERE / "one_gpu.py"] if setup.device == "cuda" else []
    return [str(word) for word in (*isolation(setup), *launcher, *harness)]


def environment(peer: str, setup: Setup, scratch: str) -> dict[str, str]:
    """The environment variables of a harness."""
    variables = {**os.environ, **SETTINGS, "TMPDIR": scratch, "FLWR_HOME": scratch, "GLOO_SOCKET_IFNAME": "lo"}
    if setup.device == "cpu":
        variables["CUDA_VISIBLE_DEVICES"] = ""  # pfl uses a GPU if there is one
    if setup.site and peer != "fedsum":
        packages = [str(setup.site.resolve() / peer), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables["PYTHONPATH"] = os.pathsep.join(packages)
    return variables


class Rival:
    """A running harness. `log` is a file for its stderr."""

    def __init__(
        self,
        peer: str,
        workload: Any,
        warmup: int = 2,
        setup: Setup = ON_CPU,
        processes: int | None = None,
        log: Any = None,
    ) -> None:
        self.peer, words = peer, command(peer, workload, warmup, setup, processes or cores())
        # In /tmp, because the paths of Ray's sockets must be short.
        self.scratch = tempfile.mkdtemp(prefix="peer", dir="/tmp")
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment(peer, setup, self.scratch),
            start_new_session=True,  # its process group then includes all its children, such as Ray's servers
        )
        try:
            if not select.select([self.process.stdout], [], [], setup.start_limit)[0]:
                raise RuntimeError(f"{' '.join(words)} took longer than {setup.start_limit:.0f} s to start")
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
        """Per round: `seconds`, the number of `clients` that trained and the total of their local `steps`."""
        self.signal(signal.SIGCONT)
        self.process.stdin.write(f"go {rounds}\n")
        self.process.stdin.flush()
        rows = [self.read("round") for _ in range(rounds)]
        self.pause()
        return rows

    def pause(self) -> None:
        """Suspends the harness until the next rounds. Flower's simulation polls every client's mailbox ten times per
        second even while it waits: with 1000 clients this takes 8% of a core from the other frameworks. pfl sleeps."""
        if self.peer == "flower":
            self.signal(signal.SIGSTOP)

    def finish(self) -> dict[str, Any]:
        """Ends the harness. Returns `mean_change` of the weights, `loss_before` and `loss_after`."""
        self.signal(signal.SIGCONT)
        self.process.stdin.close()
        facts = self.read("done")
        self.process.wait(60)
        return facts

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def close(self) -> None:
        """Kills the harness and its child processes."""
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
    """python rivals.py WORKLOAD.npz...: three rounds of each workload in each peer, alternating."""
    for path in map(Path, sys.argv[1:]):
        with Rival("pfl", path) as pfl, Rival("flower", path) as flower:
            for _ in range(3):
                print(path.stem, "pfl", *pfl.run(1), "flower", *flower.run(1), flush=True)
            print(path.stem, "pfl", pfl.finish(), "flower", flower.finish(), flush=True)


if __name__ == "__main__":
    main()
