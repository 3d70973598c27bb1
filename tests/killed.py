"""A run killed at random instants and resumed each time: `killed.py ALGORITHM FOLDER KILLS SEED [asynchronous]`.

Prints the round at which each process began. Processes are forked after torch is imported and before it has started
threads, so that none of them has to import it again.
"""

import os
import random
import signal
import sys
import time
import warnings

import torch

import fedsum

ROUNDS = 400


def settings(asynchronous: bool) -> dict:
    devices = fedsum.Devices(seconds_per_step=fedsum.LogUniform(1, 10))
    task = fedsum.tasks.vision("digits", clients=25, alpha=0.1)
    return {
        "task": task,
        "schedule": fedsum.Asynchronous(25, devices, 3, 12, jitter=0.2)
        if asynchronous
        else fedsum.Markov(25, on=0.7, off=0.9),
        "rounds": ROUNDS,
        "local_steps": 2,
        "eta_l": fedsum.InverseSqrt(0.05),
        "batch_size": 8,
        "eval_every": 7,
        "engine": "loop",
        "checkpoint_rounds": 5,
    }


def live(algorithm: str, folder: str, settings: dict, told: int) -> None:
    began = []

    def on_round(done: fedsum.RoundDone) -> None:
        if not began:
            began.append(done.round)
            print("began", done.round - 1, flush=True)
        os.write(told, b"!")

    chosen = getattr(fedsum, algorithm)()
    fedsum.simulate(algorithm=chosen, folder=folder, on_round=on_round, **settings)


def main(algorithm: str, folder: str, kills: int, seed: int, *, asynchronous: bool) -> None:
    torch.set_num_threads(1)
    draw, chosen = random.Random(seed), settings(asynchronous)
    while True:
        hear, tell = os.pipe()
        child = os.fork()
        if not child:
            live(algorithm, folder, chosen, tell)
            os._exit(0)
        os.close(tell)
        if kills:
            # One kill in five happens at any time, also during a resume. The others happen after some rounds, counted
            # by the run and not by the clock, because on a busy machine the run would otherwise make no progress.
            if draw.random() < 0.8:
                for _ in range(draw.randint(1, 15)):
                    os.read(hear, 1)
                time.sleep(draw.uniform(0.0, 0.02))
            else:
                time.sleep(draw.uniform(0.0, 0.15))
            os.kill(child, signal.SIGKILL)
        os.close(hear)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if not kills:
            sys.exit(code)
        if code == -signal.SIGKILL:
            print("killed", flush=True)
        kills -= 1


if __name__ == "__main__":
    warnings.simplefilter("error")
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), asynchronous=len(sys.argv) > 5)
