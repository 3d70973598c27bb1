"""A sweep on a real local Ray cluster; one of its workers is killed: `ray_sweep.py FILE FOLDER`.

Run inside namespaces of its own, `unshare -rnpf --mount-proc`: Ray listens beyond loopback, and its processes end
with the first one of their namespace.
"""

import fcntl
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

_SET_FLAGS, _UP, _RUNNING = 0x8914, 0x1, 0x40


def loopback_up() -> None:
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh", b"lo", _UP | _RUNNING))


def busy_worker(folder: Path) -> int | None:
    """The process that holds the lock of an unfinished run."""
    from fedsum.runs import Run, find_runs

    for run in find_runs(folder):
        if Run.read(run).state == "running":
            return int((run / ".lock").read_text().split()[1])
    return None


def kill_one(folder: Path, killed: list[int]) -> None:
    while True:
        finished = [status for status in folder.glob("*/status.toml") if 'state = "finished"' in status.read_text()]
        worker = busy_worker(folder) if len(finished) >= 3 else None
        if worker:
            os.kill(worker, signal.SIGKILL)
            killed.append(worker)
            return
        time.sleep(0.02)


def main(file: Path, folder: Path) -> None:
    loopback_up()
    # A token of its own: with one in the home folder, as any earlier ray.init writes it, `ray start` would ask for it.
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    from fedsum.runs import RayPool, expand, run_all
    from fedsum.spec import read_settings

    ray_command = str(Path(sys.executable).with_name("ray"))
    with tempfile.TemporaryDirectory(prefix="ray-") as temporary:
        start = [ray_command, "start", "--head", "--node-ip-address=127.0.0.1", "--num-cpus=2", "--disable-usage-stats"]
        start += ["--include-dashboard=false", f"--temp-dir={temporary}", "--object-store-memory=100000000"]
        # In another folder, as on a cluster: relative paths must still be relative to the caller's folder.
        subprocess.run(start, check=True, stdout=subprocess.DEVNULL, cwd=temporary)
        runs = expand(read_settings(file), folder)
        killed: list[int] = []
        threading.Thread(target=kill_one, args=(folder, killed), daemon=True).start()
        stands = run_all(runs, RayPool("127.0.0.1:6379"))
        print(f"{sum(stand.state == 'finished' for stand in stands.values())} finished, {len(killed)} killed")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
