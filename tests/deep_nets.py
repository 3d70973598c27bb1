"""Small versions of the networks that engine="auto" must train on CUDA without advice."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from fedsum.tasks import Task, models

N = 5


class Cube(torch.autograd.Function):
    """In the old style, which torch.func (and so stacking) does not support."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * gradient


class WithCustomFunction(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(Cube.apply(self.first(x)))


class LastOfLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.last = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.lstm(x)[0][:, -1])


class Checkpointed(nn.Module):
    """Its backward pass computes a part of the forward pass again."""

    def __init__(self, again=True):
        super().__init__()
        self.first, self.last, self.again = nn.Linear(6, 5), nn.Linear(5, 3), again

    def forward(self, x):
        return self.last(checkpoint(self.hidden, x, use_reentrant=False) if self.again else self.hidden(x))

    def hidden(self, x):
        return torch.tanh(self.first(x))


class Undecided(nn.Module):
    """Reads a number on the host, which neither a stacked cohort nor a CUDA graph can do."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, x):
        return self.last(x if x.sum().item() > 0 else 2 * x)


class Logits(nn.Module):
    """A classifier from transformers, with its logits as the output."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, inputs):
        return self.network(inputs).logits


def bert():
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=50, max_position_embeddings=16, num_labels=3, **sizes)
    return Logits(BertForSequenceClassification(config))


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = ViTConfig(image_size=8, patch_size=4, num_labels=3, **sizes)
    return Logits(ViTForImageClassification(config))


def resnet():
    return models.resnet18(3, width=4)


SHAPES = {resnet: (3, 8, 8), vit: (3, 8, 8), LastOfLSTM: (7, 6), WithCustomFunction: (6,)}
SHAPES |= {Checkpointed: (6,), Undecided: (6,)}
NETWORKS = (resnet, bert, LastOfLSTM, vit, WithCustomFunction, Checkpointed)


def task(make):
    draw = torch.Generator().manual_seed(0)
    if make is bert:
        inputs = torch.randint(50, (20 * N, 12), generator=draw)
    else:
        inputs = torch.randn(20 * N, *SHAPES[make], generator=draw)
    targets = torch.randint(3, (20 * N,), generator=draw)
    return Task(make, F.cross_entropy, [(inputs[i::N], targets[i::N]) for i in range(N)])
