"""The experiment `resnet` at small scale: a thin ResNet-18 on the 8x8 digits, which needs no download."""

from functools import partial

from ..tasks import Task, models, vision

_WIDTH = 8


def digits(clients: int = 10, alpha: float = 0.1) -> Task:
    """The digits with a ResNet-18 of an eighth of the width; arguments as for `vision`."""
    thin = partial(models.resnet18, channels=1, width=_WIDTH)
    return vision("digits", clients=clients, alpha=alpha, model=thin, refill=True)
