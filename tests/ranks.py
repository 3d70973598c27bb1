"""Runs on several processes: `ranks.py COUNT FOLDER KILL COMMAND...`, in a network namespace of its own.

Starts COUNT ranks of a command with torch.distributed's environment. If KILL is not 0, kills the last rank with SIGKILL
once the run's checkpoint in FOLDER is of that round or later. Prints each rank's exit code and standard error.

Run inside `unshare -rn`: the store of torch.distributed listens beyond loopback.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ray_sweep import loopback_up


def saved_round(folder: Path) -> int:
    log = folder / "log"
    rounds = [int(line.split()[4]) for line in log.read_text().splitlines() if "checkpoint of round" in line]
    return max(rounds, default=0)


def main(count: int, folder: Path, kill: int, command: list[str]) -> None:
    loopback_up()
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "WORLD_SIZE": str(count), "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    if kill:
        while not (folder / "log").exists() or saved_round(folder) < kill:
            time.sleep(0.02)
        ranks[-1].send_signal(signal.SIGKILL)
    for number, rank in enumerate(ranks):
        _, error = rank.communicate(timeout=250)
        print(f"rank {number} ended with {rank.returncode}: {error}")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
