"""Alternates between rounds of fedsum's FedAvg and of Flower's, and writes the time of each round to a file."""

import json
import time
from contextlib import closing
from pathlib import Path

from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

import fedsum
from fedsum.flower import Federation, Journal, Ledger, MergeRules
from fedsum.training.options import Options

from .task import task

app = ServerApp()


class Timed(FedAvg):
    times = []

    def aggregate_train(self, server_round, replies):
        result = super().aggregate_train(server_round, replies)
        self.times.append(time.monotonic())
        return result


@app.main()
def main(grid, context):
    config = context.run_config
    n, rounds, folder = config["clients"], config["rounds"], Path(config["folder"])
    x0 = task(n).init(0)
    options = Options(rounds=rounds, local_steps=config["local-steps"], eta_l=config["eta-l"], batch_size=16)
    round_times = {"fedsum": [], "flower": []}
    for turn in range(config["turns"]):
        times = [time.monotonic()]
        ledger = Ledger(fedsum.FedAvg(), x0, n, options, MergeRules(quorum=n))
        with closing(Journal(folder / f"turn-{turn}")) as journal:
            run = Federation(ledger, journal, on_round=lambda *_, times=times: times.append(time.monotonic()))
            run.start(grid, timeout=300.0)
        round_times["fedsum"].append(times)
        Timed.times = [time.monotonic()]
        strategy = Timed(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=n, min_available_nodes=n)
        strategy.start(grid, initial_arrays=ArrayRecord({"x": Array(x0.numpy())}), num_rounds=rounds)
        round_times["flower"].append(Timed.times)
    (folder / "times.json").write_text(json.dumps(round_times))
