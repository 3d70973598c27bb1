"""The final models of a fixed list of runs, which must not change when the code is refactored.

    python tests/final_models.py           # prints the SHA-256 of each final model
    python tests/final_models.py --write   # also writes tests/final_models.safetensors, which the tests compare with

The list: every algorithm on digits, a sweep of four from a file, one run that is killed and resumed, and one training
by the commit protocol of the Flower apps, in this process. All in float64 with the loop engine.
"""

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import fedsum
from fedsum.algorithms import ALGORITHMS

STORED = Path(__file__).with_suffix(".safetensors")
N = 12
OPTIONS = {
    "rounds": 40,
    "local_steps": 3,
    "eta_l": fedsum.InverseSqrt(0.1),
    "batch_size": 16,
    "seed": 5,
    "eval_every": 20,
    "engine": "loop",
    "dtype": torch.float64,
}
SWEEP = """
rounds = 30
local_steps = 3
eta_l = {name = "InverseSqrt", eta_0 = 0.1}
batch_size = 16
dtype = "float64"
engine = "loop"
task = {name = "digits", clients = 12, model = "logistic"}
[sweep]
algorithm = ["FedSUM", "SCAFFOLD"]
schedule = [{name = "Uniform", size = 4}, {name = "Markov", on = 0.7, off = 0.8}]
"""


def task():
    return fedsum.tasks.vision("digits", clients=N, alpha=0.1, model="logistic")


def schedule():
    return fedsum.Biased(N, group=2)


def simulated(name, folder=None, on_round=None):
    algorithm = ALGORITHMS[name]()
    return fedsum.simulate(task(), algorithm, schedule(), folder=folder, on_round=on_round, **OPTIONS).x


def swept(folder):
    (folder / "four.toml").write_text(SWEEP)
    code = "from fedsum.cli import main; main()"
    command = [sys.executable, "-c", code, "run", "four.toml", "--folder", "four", "--jobs", "2", "--json"]
    subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)
    for model in sorted((folder / "four").rglob("model.safetensors")):
        found = load_file(model)
        yield f"sweep {model.parent.name}", torch.cat([found[name].reshape(-1) for name in sorted(found)])


def killed(folder):
    """A run that is killed in round 25, after the checkpoint of round 20, then resumed."""

    def die(done):
        if done.round == 25:
            os.kill(os.getpid(), signal.SIGKILL)

    OPTIONS["checkpoint_rounds"] = 10
    try:
        child = os.fork()
        if not child:
            simulated("FedSUMCR", folder / "killed", die)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        return simulated("FedSUMCR", folder / "killed")
    finally:
        del OPTIONS["checkpoint_rounds"]


def deployed(name="FedSUM"):
    """The protocol of the Flower apps without Flower: orders, replies and a store on disk per client."""
    from fedsum.flower.protocol import Ledger, MergeRules, answer
    from fedsum.flower.storage import ClientStore
    from fedsum.training.options import Options

    whole = task().to(torch.device("cpu"), OPTIONS["dtype"])
    ledger = Ledger(ALGORITHMS[name](), whole.init(OPTIONS["seed"]), N, Options(**OPTIONS), MergeRules())
    with tempfile.TemporaryDirectory() as folder:
        for t in range(OPTIONS["rounds"]):
            for client in schedule().active(OPTIONS["seed"], t).tolist():
                order = ledger.order(client)
                store = ClientStore(folder, order.step_id.job, client)
                assert ledger.receive(answer(order, ledger.algorithm, whole, store)) is None
            ledger.close_round(len(schedule().active(OPTIONS["seed"], t)))
    return ledger.state.server["x"]


def all_models(folder):
    torch.set_num_threads(1)
    found = {name: simulated(name) for name in ALGORITHMS}
    found |= dict(swept(folder))
    found["killed and resumed"] = killed(folder)
    found["deployed"] = deployed()
    return found


if __name__ == "__main__":
    warnings.simplefilter("error")
    with tempfile.TemporaryDirectory() as folder:
        models = all_models(Path(folder))
    for name, x in models.items():
        print(hashlib.sha256(x.numpy().tobytes()).hexdigest(), name)
    if "--write" in sys.argv:
        save_file(models, STORED)
