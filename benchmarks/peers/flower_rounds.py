"""FedAvg rounds in Flower's simulation, timed. Start it in a network namespace with loopback only: see loopback.py.

python flower_rounds.py mnist.npz --warmup 2 --rounds 3
python flower_rounds.py mnist.npz --warmup 2                     # "go N" on stdin

Set up as in Flower's documentation: message API, FedAvg, the Simulation Runtime on Ray. (run_simulation starts it from
Python; `flwr run` uses the same runtime.) One core per client, so that every core has an actor, to which Ray gives one
OpenMP thread. On a GPU, a client takes one core and 1/`--actors` of the GPU. The actors keep data and model between
clients.
"""

import os
import sys
import tempfile

from flower_client import app as client_app
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from models import build, tensors, verdict
from pacing import Pacer, arguments
from workload import Workload


class Finished(Exception):
    """Raised to end the run: Flower's loop cannot be stopped in another way."""


class Paced(FedAvg):
    """Flower's FedAvg, paused before each round. A round's time ends where the next round would start."""

    def __init__(self, pacer, **kwargs):
        super().__init__(**kwargs)
        self.pacer = pacer

    def configure_train(self, server_round, arrays, config, grid):
        if server_round > 1:
            self.pacer.report(self.pacer.stop(), clients=self.clients, steps=self.steps)
        self.arrays = arrays
        if not self.pacer.wait():
            raise Finished
        self.pacer.start()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        contents = [reply.content for reply in replies if reply.has_content()]
        self.clients, self.steps = len(contents), sum(content["metrics"]["steps"] for content in contents)
        return super().aggregate_train(server_round, replies)


def main():
    parser = arguments(__doc__)
    parser.add_argument("--cores", type=int, default=1, help="cores (and threads) per client")
    parser.add_argument("--actors", type=int, default=len(os.sched_getaffinity(0)), help="on a GPU, that share it")
    options = parser.parse_args()
    path = str(options.workload.resolve())
    work = Workload.read(path)
    recipe, net = work.recipe, build(work.name)
    pacer = Pacer(options.warmup, options.rounds)
    strategy = Paced(
        pacer,
        fraction_train=recipe.cohort / recipe.clients,
        fraction_evaluate=0.0,
        min_train_nodes=recipe.cohort,
        min_available_nodes=recipe.clients,
    )
    server_app = ServerApp()

    @server_app.main()
    def serve(grid, context):
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(net.state_dict()),
            train_config=ConfigRecord({"workload": path, "device": options.device}),
            num_rounds=sys.maxsize,
            timeout=None,
        )

    with tempfile.TemporaryDirectory(prefix="ray") as scratch:
        cores, gpus = len(os.sched_getaffinity(0)), int(options.device == "cuda")
        ray = {"num_cpus": max(cores, gpus * options.actors), "num_gpus": gpus}
        ray |= {"_node_ip_address": "127.0.0.1", "_temp_dir": scratch}
        share = {"num_cpus": options.cores, "num_gpus": gpus / options.actors}
        backend = {"init_args": ray, "client_resources": share}
        try:
            run_simulation(server_app, client_app, num_supernodes=recipe.clients, backend_config=backend)
        except Finished:
            net.load_state_dict(strategy.arrays.to_torch_state_dict())
            pacer.say(done=True, rounds=pacer.done, **verdict(work.name, tensors(work), net))


if __name__ == "__main__":
    main()
