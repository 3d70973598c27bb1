"""A folder of images, one subfolder per client and label.

    python examples/image_folder.py [FOLDER]

The layout is FOLDER/images/CLIENT/LABEL/*.png. The script writes such a folder from scikit-learn's digits, trains a
small CNN, and prints the loss and accuracy of each client. With your own images, skip `write_images`.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn

import fedsum

CLIENTS = 10


def write_images(folder):
    """Each client has images of four labels."""
    digits = load_digits()
    for number, (image, label) in enumerate(zip(digits.images[:600], digits.target[:600], strict=True)):
        client = (label + number % 4) % CLIENTS
        path = folder / f"phone{client}" / str(label) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 15).astype(np.uint8)).save(path)


def read_images(folder):
    """The images and labels of each client, by name."""
    clients = {}
    for client in sorted(path for path in folder.iterdir() if path.is_dir()):
        paths = sorted(client.glob("*/*.png"))
        pixels = np.stack([np.asarray(Image.open(path), dtype=np.float32) for path in paths]) / 255
        labels = [int(path.parent.name) for path in paths]
        clients[client.name] = (torch.from_numpy(pixels)[:, None], torch.tensor(labels))
    return clients


def network():
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 16, 10))


def main(folder):
    write_images(folder / "images")
    clients = read_images(folder / "images")
    train = {name: (x[::2], y[::2]) for name, (x, y) in clients.items()}
    held_out = {name: (x[1::2], y[1::2]) for name, (x, y) in clients.items()}
    task = fedsum.tasks.Task(network, nn.functional.cross_entropy, train, client_test_data=held_out)
    schedule = fedsum.Biased(task.n, group=1)
    options = {"rounds": 30, "local_steps": 5, "eta_l": 0.1, "batch_size": 16, "per_client": True}
    history = fedsum.simulate(task, fedsum.FedSUM(), schedule, **options)
    print(history.per_client)
    return history


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "phones"))
