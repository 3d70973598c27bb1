"""CIFAR-10 under P1 with batches drawn with replacement, on one core: python replacement.py ALGORITHM ROUNDS"""

import sys

import torch

import fedsum
from fedsum.base.keyed import Purpose, rng
from fedsum.tasks import Task


def batches(self, seed, t, client, K, batch_size):
    part = self.partition.parts[client]
    return torch.from_numpy(part[rng(seed, Purpose.BATCHES, t, client).integers(len(part), size=(K, batch_size))])


Task.batches = batches
torch.set_num_threads(1)
history = fedsum.simulate(
    fedsum.tasks.vision("cifar10", clients=100, alpha=0.1),
    getattr(fedsum, sys.argv[1])(),
    fedsum.Uniform(100, 20),
    rounds=int(sys.argv[2]),
    local_steps=10,
    batch_size=128,
    eta_l=fedsum.InverseSqrt(0.01, over=10.0),
    seed=1,
    eval_every=20,
    engine="loop",
)
print(history.metrics[["round", "train_loss", "test_accuracy"]].to_string(index=False))
