"""Sentences and a model with an embedding.

    python examples/text_embedding.py

Each client writes about its own topics. The model averages word embeddings and decides whether a sentence is praise.
The script makes the sentences; with your own, replace `sentences`.
"""

import numpy as np
import torch
from torch import nn

import fedsum

PRAISE, BLAME = ["good", "great", "lovely", "fine", "superb"], ["bad", "poor", "awful", "dull", "broken"]
TOPICS = ["film", "book", "phone", "train", "hotel", "soup", "chair", "song", "game", "lamp"]
LENGTH = 6
WORDS = {word: number for number, word in enumerate(["<pad>", "the", "was", "very", *TOPICS, *PRAISE, *BLAME])}


def sentences(client, count, draw):
    """Sentences of a client and whether they are praise. Clients differ in their topics and in their mood."""
    texts, labels = [], []
    for _ in range(count):
        label = int(draw.random() < 0.2 + 0.6 * (client % 2))
        words = PRAISE if label else BLAME
        topic = TOPICS[(client + int(draw.integers(2))) % len(TOPICS)]
        texts.append(f"the {topic} was very {words[int(draw.integers(len(words)))]}")
        labels.append(label)
    return texts, labels


def as_tensors(texts, labels):
    """Word ids, padded to one length."""
    ids = torch.zeros(len(texts), LENGTH, dtype=torch.int64)
    for row, text in enumerate(texts):
        for place, word in enumerate(text.split()[:LENGTH]):
            ids[row, place] = WORDS[word]
    return ids, torch.tensor(labels)


class Bag(nn.Module):
    """The mean of the word embeddings, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.embedding, self.output = nn.Embedding(len(WORDS), 8, padding_idx=0), nn.Linear(8, 2)

    def forward(self, ids):
        return self.output(self.embedding(ids).mean(-2))


def main():
    draw = np.random.default_rng(0)
    clients = [as_tensors(*sentences(client, 40, draw)) for client in range(10)]
    test = as_tensors(*sentences(0, 100, draw))
    task = fedsum.tasks.Task(Bag, nn.functional.cross_entropy, clients, test)
    options = {"rounds": 60, "local_steps": 5, "eta_l": 0.5, "batch_size": 16}
    history = fedsum.simulate(task, fedsum.FedSUM(), fedsum.Uniform(10, 5), **options)
    print(history.metrics[["round", "train_loss", "test_accuracy"]].to_string(index=False))
    return history


if __name__ == "__main__":
    main()
