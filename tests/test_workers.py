"""Worker processes: started from scripts, stdin and notebooks, ended with their parent, with clear errors."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
import nets
import numpy as np
import psutil
import pytest
import torch
from nbclient import NotebookClient

import fedsum
from fedsum.engine import choose, processes
from fedsum.engine.loop import LoopEngine
from fedsum.engine.processes import WorkerEngine
from fedsum.tasks import Task

# No `if __name__ == "__main__"`; the module class and the loss are defined in the script.
SCRIPT = """
import torch
import fedsum

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(5, 2)

    def forward(self, x):
        return self.layer(x.relu())

def loss(outputs, targets):
    return torch.nn.functional.cross_entropy(outputs, targets)

draw = torch.Generator().manual_seed(0)
data = [(torch.randn(9, 5, generator=draw), torch.randint(2, (9,), generator=draw)) for _ in range(4)]
task = fedsum.tasks.Task(Net, loss, data)
options = dict(rounds=4, local_steps=2, eta_l=0.1)
runs = [
    fedsum.simulate(task, fedsum.FedSUM(), fedsum.Uniform(4, 3), engine=engine, **options).x
    for engine in ("loop", "workers")
]
print("same bits:", torch.equal(*runs))
"""


def test_from_a_script_without_a_guard(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, timeout=120)
    assert done.stdout == "same bits: True\n", done.stderr


def test_from_standard_input():
    done = subprocess.run([sys.executable, "-"], input=SCRIPT, capture_output=True, text=True, timeout=120)
    assert done.stdout == "same bits: True\n", done.stderr


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:RuntimeWarning")  # of Jupyter's own
def test_from_a_notebook(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SCRIPT)])
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    # The other outputs are progress bars.
    printed = [output["text"] for output in notebook.cells[0].outputs if output.get("name") == "stdout"]
    assert printed == ["same bits: True\n"]


def test_workers_end_when_the_parent_is_killed():
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1])\n"
        "import nets, torch\n"
        "from fedsum.engine.processes import WorkerEngine\n"
        "engine = WorkerEngine(nets.task(), 0, 3, 8, 2)\n"
        "print(*[worker.process.pid for worker in engine._workers], flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, os.path.dirname(__file__)], stdout=subprocess.PIPE, text=True
    )
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(workers) == 2
    assert all(alive(pid) for pid in workers)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)  # there is no notification when another process's child ends
    assert not any(alive(pid) for pid in workers)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def plan_for(task):
    return fedsum.LocalPlan(task.init(0), 0.1)


def test_tied_weights_stay_tied():
    """The weights are large enough to be shared through a file, and must stay one tensor."""

    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(520, 520, bias=False)
            self.second = torch.nn.Linear(520, 520, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x))

    draw = torch.Generator().manual_seed(0)
    data = [(torch.randn(4, 520, generator=draw), torch.randint(520, (4,), generator=draw)) for _ in range(2)]
    task = Task(Tied, torch.nn.functional.cross_entropy, data)
    assert task.d == 520 * 520
    reference = LoopEngine(task, 0, 2, 4)(plan_for(task), np.array([0, 1]), 0)
    engine = WorkerEngine(task, 0, 2, 4, 1)
    try:
        assert torch.equal(engine(plan_for(task), np.array([0, 1]), 0), reference)
    finally:
        engine.close()


def test_auto_goes_on_without_workers_that_cannot_start(monkeypatch):
    lock = threading.Lock()

    def loss(outputs, targets):
        with lock:
            return torch.nn.functional.cross_entropy(outputs, targets)

    monkeypatch.setattr(choose, "_WORTH_STARTING", 0.0)
    monkeypatch.setattr(choose, "cores", lambda: 2)
    task = Task(nets.convolutional, loss, nets.images())
    options = {"rounds": 4, "local_steps": 2, "eta_l": 0.1, "batch_size": 4}
    history = fedsum.simulate(task, fedsum.FedSUM(), fedsum.Uniform(nets.N, 3), **options)
    assert history.rows[-1]["round"] == 4


def test_without_room_in_shared_memory_the_disk_is_used(monkeypatch):
    places = []

    def reserve(descriptor, size):
        places.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        if places[-1].startswith("/dev/shm"):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(processes, "reserve", reserve)
    task = nets.task()
    engine = WorkerEngine(task, 0, 1, 8, 1)
    assert engine(plan_for(task), np.array([0]), 0).isfinite().all()
    engine.close()
    assert places[0].startswith("/dev/shm")
    assert not places[-1].startswith("/dev/shm")


def test_an_error_in_a_worker_comes_back_with_its_traceback():
    def failing(outputs, targets):
        raise ValueError("no such loss")

    task = Task(nets.convolutional, failing, nets.images())
    engine = WorkerEngine(task, 0, 1, 8, 1)
    with pytest.raises(RuntimeError, match="ValueError: no such loss"):
        engine(plan_for(task), np.array([0]), 0)
    engine.close()


def test_a_worker_that_dies_is_named():
    task = nets.task()
    engine = WorkerEngine(task, 0, 1, 8, 1)
    engine._workers[0].process.kill()
    with pytest.raises(RuntimeError, match="ended with code -9"):
        engine(plan_for(task), np.array([0, 1]), 0)
    engine.close()


def test_workers_on_cuda_are_refused():
    with pytest.raises(fedsum.InputError, match="on CUDA use 'batched'"):
        fedsum.engine.choose_engine("workers", nets.task(), torch.device("cuda"), seed=0, K=1, batch_size=1, rounds=1)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs process affinity")
def test_cores_are_those_the_process_may_use():
    allowed = os.sched_getaffinity(0)
    assert processes.cores() == len(allowed)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert processes.cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_without_process_affinity_all_cores_count(monkeypatch):
    monkeypatch.delattr(psutil.Process, "cpu_affinity", raising=False)  # as on macOS
    assert processes.cores() == psutil.cpu_count()


STARTING = """
rounds = 100000
local_steps = 2
eta_l = 0.01
engine = "workers"
task = {name = "digits", clients = 4}
algorithm = "FedSUM"
schedule = {name = "Uniform", size = 2}
"""


def importing(child, worker):
    """Whether a worker is in the middle of its imports, which take a second or more after torch's library."""
    try:
        return worker in " ".join(child.cmdline()) and "libtorch" in Path(f"/proc/{child.pid}/maps").read_text()
    except (psutil.Error, OSError):  # another child of the command, which has ended
        return False


@pytest.mark.parametrize(
    ("sweep", "worker"), [("", "process_main"), ("[sweep]\nseed = [0, 1]\n", "spawn_main")], ids=["engine", "sweep"]
)
def test_ctrl_c_while_workers_start_is_no_traceback(sweep, worker, tmp_path):
    (tmp_path / "run.toml").write_text(STARTING + sweep)
    line = [sys.executable, "-m", "fedsum", "run", "run.toml", "--folder", "runs"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(line, cwd=tmp_path, text=True, start_new_session=True, **pipes) as parent:
        try:
            while not any(importing(child, worker) for child in psutil.Process(parent.pid).children()):
                assert parent.poll() is None
                time.sleep(0.02)
            os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
            _, error = parent.communicate(timeout=60)
        finally:
            parent.kill()
    assert (parent.returncode, error) == (130, "resume with: fedsum resume runs\nstopped\n")
