"""Image classification as in the paper: a data set, a partition over clients and a network."""

from collections.abc import Callable, Sequence
from functools import partial

from torch import nn
from torch.nn import functional as F

from ..base.checks import InputError, choice
from . import data, models
from .client_data import ClientData
from .partition import Partition, named_partition
from .task import Task
from .transforms import Augment, Standardize

_CNN = {
    "mnist": models.mnist_cnn,
    "fashion_mnist": models.mnist_cnn,
    "svhn": models.svhn_cnn,
    "cifar10": models.cifar10_cnn,
    "cifar100": models.cifar10_cnn,
}
_HIDDEN = (64,)
_AUGMENT = {"crop": Augment(4, flip=False), "crop+flip": Augment(4, flip=True)}
_CLIENTS = 100


def vision(
    name: str,
    *,
    clients: int | None = None,
    alpha: float = 0.1,
    partition: str | Partition = "dirichlet",
    model: str | Callable[[], nn.Module] | None = None,
    init: str = "default",
    augment: str | Augment | None = None,
    weights: str | Sequence[float] | None = None,
    gradient_norm: bool = False,
    refill: bool = False,
    shards_per_client: int = 2,
    seed: int = 0,
) -> Task:
    """An image classification task; the defaults are the paper's.

    Args:
      name: mnist, fashion_mnist, svhn, cifar10, cifar100, or digits.
      clients: N, by default 100. Leave it out for natural clients: the column determines their number.
      alpha: concentration of the two Dirichlet partitions; with a smaller one, the clients differ more.
      partition: "dirichlet" (the paper's), "class_dirichlet", "iid", "shards", a column of the data set for
        natural clients (cifar100: "coarse_label"), or your own Partition of the training samples.
      model: "cnn" (the paper's), "resnet18", "logistic", "mlp" (one hidden layer of 64 units), or a function that
        returns a module; default: "cnn", and "mlp" for digits.
      init: initial weights: "default" (PyTorch's) or "kaiming".
      augment: random changes of training images: "crop" (of the image padded by 4 pixels), "crop+flip", or your own
        Augment; default: none.
      weights: weights of the clients in the objective: "samples" (in proportion to their samples) or N numbers that
        sum to 1; default: equal weights.
      gradient_norm: also report the squared norm of the full gradient, at the cost of one epoch per evaluation.
      refill: give every client without samples one sample of the largest client. Dirichlet partitions may leave
        clients without samples.
      shards_per_client: shards per client, for the partition "shards".
      seed: seed of the partition.

    >>> task = vision("digits", clients=20, partition="iid")
    >>> task.n, task.d
    (20, 4810)
    """
    settings = {key: value for key, value in locals().items() if key not in ("name", "clients")}
    images = data.load(name)
    split = named_partition(
        partition,
        images.train_targets,
        clients,
        default_clients=_CLIENTS,
        alpha=alpha,
        refill=refill,
        shards_per_client=shards_per_client,
        seed=seed,
        columns=images.columns,
    )
    # Natural clients come from a column, so a file leaves `clients` out. A file cannot describe Python objects.
    n = None if isinstance(partition, str) and partition in images.columns else split.n
    in_python = callable(model) or isinstance(partition, Partition) or isinstance(augment, Augment)
    source = None if in_python else {"name": name, "clients": n, **settings}
    return Task(
        _model(images, model, init),
        F.cross_entropy,
        ClientData(images.train_inputs, images.train_targets, split),
        (images.test_inputs, images.test_targets),
        prepare=Standardize(images.mean, images.std),
        augment=augment if isinstance(augment, Augment | None) else choice("augment", augment, _AUGMENT),
        weights=weights,
        gradient_norm=gradient_norm,
        source=source,
    )


def _model(images: data.Images, model: str | Callable[[], nn.Module] | None, init: str) -> Callable[[], nn.Module]:
    # Partials, not lambdas: a task must be picklable, to be sent to other processes.
    inputs = images.train_inputs[0].numel()
    makers: dict[str, Callable[[], nn.Module]] = {
        "logistic": partial(models.logistic, inputs, images.classes),
        "mlp": partial(models.mlp, inputs, _HIDDEN, images.classes),
        "resnet18": partial(models.resnet18, images.classes, channels=images.train_inputs.shape[1]),
    }
    if images.name in _CNN:
        makers["cnn"] = partial(_CNN[images.name], images.classes)
    if model is None:
        model = "cnn" if images.name in _CNN else "mlp"
    if isinstance(model, nn.Module):
        raise InputError("model", type(model).__name__, "a function that makes a module, not the module itself")
    make = model if callable(model) else choice("model", model, makers)
    inits: dict[str, Callable[[], nn.Module]] = {"default": make, "kaiming": partial(_kaiming, make)}
    return choice("init", init, inits)


def _kaiming(make: Callable[[], nn.Module]) -> nn.Module:
    return models.kaiming_normal_(make())
