"""The task: model, loss and data. This is the file to make your own."""

from torch import Tensor, nn

from fedsum.flower import ServerTask, own_data
from fedsum.tasks import Task, vision
from fedsum.tasks.models import kaiming_normal_


def model() -> nn.Module:
    """Any module without batch statistics (GroupNorm instead of BatchNorm). The seed determines its first weights."""
    layers = nn.Sequential(
        nn.Conv2d(1, 10, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(10, 20, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(20 * 7 * 7, 50),
        nn.ReLU(),
        nn.Linear(50, 10),
    )
    return kaiming_normal_(layers)  # learns faster than with PyTorch's default initialisation


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over the batch."""
    return nn.functional.cross_entropy(outputs, targets)


def load(client: int, clients: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of this client, loaded on its own machine.

    Here each client takes its part of MNIST, split so that label distributions differ between clients.
    """
    whole = vision("mnist", clients=clients, alpha=0.5)
    part = whole.partition.parts[client]
    return scaled(whole.inputs[part]), whole.targets[part]


def scaled(images: Tensor) -> Tensor:
    return (images.float() / 255 - 0.1307) / 0.3081


def client_task(client: int, clients: int) -> Task:
    """Called in the client app for every order, so it should be fast."""
    return Task(model, loss, own_data(client, clients, *load(client, clients)))


def server_task(clients: int) -> ServerTask:
    """Called in the server app. Returns an object with init(seed), the flat first model, and evaluate(x), the metrics.

    This server has images to evaluate on: `train_loss` is over 10,000 of the clients' images, `test_accuracy` over the
    test set.
    """
    whole = vision("mnist", clients=clients, alpha=0.5)
    assert whole.test_data is not None
    train_images = scaled(whole.inputs[:10_000]), whole.targets[:10_000]
    return Task(model, loss, [train_images], (scaled(whole.test_data[0]), whole.test_data[1]))
