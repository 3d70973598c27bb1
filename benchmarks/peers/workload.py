"""One file per workload, which fedsum and its peers read.

python benchmarks/peers/workload.py FOLDER      # writes mnist.npz, cifar10.npz and pfl-cifar10.npz

Images are synthetic: speed does not depend on their content. Each image is half noise, half the picture of its class,
so that the loss of a model that trains decreases.
"""

import argparse
import dataclasses
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np


class Recipe(NamedTuple):
    """A client's local work: `steps` random batches of `batch` samples at rate `lr`, or one ordered pass if `epoch`."""

    title: str
    parameters: int  # of its model, see models.py
    shape: tuple[int, ...]
    clients: int
    size: int  # samples per client, on average
    spread: int  # largest deviation of a client's samples from `size`
    cohort: int  # clients per round
    steps: int
    batch: int
    lr: float
    epoch: bool


RECIPES = {
    "mnist": Recipe("paper MNIST", 51_480, (1, 28, 28), 100, 600, 50, 20, 10, 128, 0.01, False),
    "cifar10": Recipe("paper CIFAR-10", 551_786, (3, 32, 32), 100, 500, 0, 20, 10, 128, 0.01, False),
    "pfl-cifar10": Recipe("pfl's own CIFAR-10", 1_626_442, (3, 32, 32), 1000, 50, 0, 50, 5, 10, 0.1, True),
}


@dataclasses.dataclass
class Workload:
    name: str
    images: np.ndarray  # uint8 [M, C, H, W]
    labels: np.ndarray  # int64 [M]
    clients: list[np.ndarray]  # sample indices of each client

    @property
    def recipe(self) -> Recipe:
        return RECIPES[self.name]

    @classmethod
    def drawn(cls, name: str, seed: int = 0) -> Self:
        recipe, rng = RECIPES[name], np.random.default_rng(seed)
        sizes = np.full(recipe.clients, recipe.size)
        for i in range(0, recipe.clients - 1, 2):  # in pairs, so that the sum stays
            shift = rng.integers(-recipe.spread, recipe.spread + 1)
            sizes[i : i + 2] += shift, -shift
        labels = rng.integers(0, 10, sizes.sum())
        images = rng.integers(0, 128, (len(labels), *recipe.shape), dtype=np.uint8)
        images += rng.integers(0, 128, (10, *recipe.shape), dtype=np.uint8)[labels]
        order = rng.permutation(len(labels))
        return cls(name, images, labels, np.split(order, np.cumsum(sizes)[:-1]))

    def write(self, path: Any) -> None:
        sizes = [len(ids) for ids in self.clients]
        np.savez(
            path,
            name=self.name,
            images=self.images,
            labels=self.labels,
            indices=np.concatenate(self.clients),
            sizes=sizes,
        )

    @classmethod
    def read(cls, path: Any) -> Self:
        with np.load(path) as file:
            clients = np.split(file["indices"], np.cumsum(file["sizes"])[:-1])
            return cls(str(file["name"]), file["images"], file["labels"], clients)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in RECIPES:
        Workload.drawn(name).write(folder / f"{name}.npz")


if __name__ == "__main__":
    main()
