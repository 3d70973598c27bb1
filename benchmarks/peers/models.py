"""The models and the data as tensors, the same for every framework. Needs only torch and workload.py."""

import torch
from torch import Tensor, nn
from workload import RECIPES, Workload


def conv(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1)


def mnist() -> list[nn.Module]:
    """C(1,10)-R-M-C(10,20)-D-R-M-L(50)-R-D-L(10)"""
    first = [conv(1, 10), nn.ReLU(), nn.MaxPool2d(2), conv(10, 20), nn.Dropout(0.2), nn.ReLU(), nn.MaxPool2d(2)]
    return [*first, nn.Flatten(), nn.Linear(980, 50), nn.ReLU(), nn.Dropout(0.2), nn.Linear(50, 10)]


def cifar10() -> list[nn.Module]:
    """C(3,32)-R-M-C(32,32)-R-M-L(256)-R-L(64)-R-L(10)"""
    first = [conv(3, 32), nn.ReLU(), nn.MaxPool2d(2), conv(32, 32), nn.ReLU(), nn.MaxPool2d(2)]
    return [
        *first,
        nn.Flatten(),
        nn.Linear(2048, 256),
        nn.ReLU(),
        nn.Linear(256, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    ]


def pfl_cifar10() -> list[nn.Module]:
    """The CNN of pfl-research's CIFAR-10 benchmark (its simple_cnn): no padding, one pool, Glorot weights."""
    first = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)]
    layers = [*first, nn.Flatten(), nn.Linear(12544, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)]
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
    return layers


def build(name: str, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    net = nn.Sequential(*{"mnist": mnist, "cifar10": cifar10, "pfl-cifar10": pfl_cifar10}[name]())
    count = sum(p.numel() for p in net.parameters())
    if count != RECIPES[name].parameters:
        raise ValueError(f"model {name!r} has {count} parameters; {RECIPES[name].parameters} expected")
    return net


def use_tensor_cores() -> None:
    """On a GPU, tf32 in matrix products and convolutions, as fedsum's precision="tf32" does."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True  # the fastest algorithm for these sizes, chosen in the warm-up


def tensors(work: Workload, device: str = "cpu") -> list[tuple[Tensor, Tensor]]:
    """Each client's images in [-1, 1] and labels on the device; the clients' tensors are slices of one block."""
    order, sizes = [i for ids in work.clients for i in ids], [len(ids) for ids in work.clients]
    images = torch.from_numpy(work.images[order]).to(device).float().div_(127.5).sub_(1)
    labels = torch.from_numpy(work.labels[order]).to(device)
    return list(zip(images.split(sizes), labels.split(sizes), strict=True))


def batches(x: Tensor, y: Tensor, name: str):
    """The batches of one client in one round."""
    recipe = RECIPES[name]
    if recipe.epoch:
        yield from zip(x.split(recipe.batch), y.split(recipe.batch), strict=True)
    else:
        for ids in torch.randint(len(x), (recipe.steps, recipe.batch), device=x.device):
            yield x[ids], y[ids]


@torch.no_grad()
def verdict(name: str, data: list[tuple[Tensor, Tensor]], net: nn.Module) -> dict[str, float]:
    """How far the weights changed, and the loss on the first clients' samples before and after training."""
    x, y = (torch.cat(parts)[:1000].cpu() for parts in zip(*data[:20], strict=True))
    first, net = build(name), net.cpu()
    moved = [(p - q).abs().flatten() for p, q in zip(net.parameters(), first.parameters(), strict=True)]
    loss = [nn.functional.cross_entropy(each.eval()(x), y).item() for each in (first, net)]
    return {"mean_change": torch.cat(moved).mean().item(), "loss_before": loss[0], "loss_after": loss[1]}
