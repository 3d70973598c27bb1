"""FedAvg rounds in fedsum, timed, driven like its peers.

python fedsum_rounds.py mnist.npz --warmup 2                     # "go N" on stdin

A user's own task: module, loss, and tensors per client. On a CPU the engine is "workers"; "auto" would choose it too,
but only after the first round. On a GPU it is "auto", in tf32.
"""

import sys

import torch
from models import build, tensors, verdict
from pacing import Pacer, arguments
from torch import nn
from workload import Workload

import fedsum
from fedsum.tasks import Task


class Silent(Task):
    """A task without evaluation, which stores the newest model for `verdict`."""

    def evaluate(self, x):
        Silent.newest = x
        return {"train_loss": 0.0}


class Over(Exception):
    """Raised to end the run."""


def main():
    options = arguments(__doc__).parse_args()
    work = Workload.read(options.workload)
    recipe, data, cuda = work.recipe, tensors(work), options.device == "cuda"
    task = Silent(build(work.name), nn.functional.cross_entropy, data)
    pacer = Pacer(options.warmup, options.rounds)

    def on_round(done):
        pacer.report(pacer.stop(options.device), clients=len(done.active), steps=len(done.active) * recipe.steps)
        if not pacer.wait():
            raise Over
        pacer.start()

    pacer.wait()
    pacer.start()
    try:
        fedsum.simulate(
            task,
            fedsum.FedAvg(),
            fedsum.Uniform(recipe.clients, recipe.cohort),
            rounds=sys.maxsize,  # on_round ends it
            local_steps=recipe.steps,
            eta_l=recipe.lr,
            batch_size=recipe.batch,
            eval_every=1,
            engine="auto" if cuda else "workers",
            device=options.device,
            precision="tf32" if cuda else "fp32",
            on_round=on_round,
        )
    except Over:
        pacer.say(
            done=True, rounds=pacer.done, **verdict(work.name, data, task.model(torch.clone(Silent.newest).cpu()))
        )


if __name__ == "__main__":
    main()
