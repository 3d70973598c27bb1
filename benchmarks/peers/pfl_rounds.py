"""FedAvg rounds in pfl-research, timed.

python pfl_rounds.py mnist.npz --warmup 2 --rounds 3                                            # one process
torchrun --standalone --nnodes=1 --nproc_per_node=2 pfl_rounds.py mnist.npz --warmup 2          # "go N" on stdin

Set up as in pfl's guide to fast simulations and its CIFAR-10 benchmark: SimulatedBackend, PyTorchModel,
FederatedAveraging with WeightByUser, all data in memory as tensors in pfl's own Dataset, no evaluation. As the guide
advises, torchrun starts several processes, which share the clients of a round. On a GPU, all data is on it before
training, as in pfl's benchmark; for several processes per GPU see one_gpu.py.
"""

import sys

import numpy as np
import torch
from models import batches, build, tensors, use_tensor_cores, verdict
from pacing import Pacer, arguments
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.internal.ops import pytorch_ops
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import distributed
from workload import Workload


class Drawn(Dataset):
    """Draws the K batches of the paper. pfl's Dataset goes through its samples once, in order."""

    def __init__(self, raw_data, name, **kwargs):
        super().__init__(raw_data, **kwargs)
        self.name = name

    def iter(self, batch_size):
        return batches(*self.raw_data, self.name)


class Net(torch.nn.Module):
    """The interface that PyTorchModel needs: a loss and metrics."""

    def __init__(self, net):
        super().__init__()
        self.net, self.steps = net, 0

    def loss(self, x, y):
        self.steps += 1
        if not self.training:
            self.train()
        return torch.nn.functional.cross_entropy(self.net(x), y)

    @torch.no_grad()
    def metrics(self, x, y):
        """Called in the first round only, which is a warm-up round: see evaluation_frequency."""
        loss = torch.nn.functional.cross_entropy(self.eval().net(x), y, reduction="sum")
        return {"loss": Weighted(loss.item(), len(x))}


class Paced(TrainingProcessCallback):
    """Pauses pfl's loop between rounds. With several processes, the first one reads stdin and notifies the others."""

    def __init__(self, net, warmup, rounds, device):
        self.net, self.device, self.several = net, device, pytorch_ops.distributed.world_size > 1
        self.first = pytorch_ops.distributed.global_rank == 0
        self.pacer = Pacer(warmup, rounds)

    def go(self):
        more = torch.tensor(int(self.first and self.pacer.wait()))
        if self.several:
            distributed.broadcast(more, 0)
        self.pacer.start()
        return bool(more)

    def on_train_begin(self, *, model):
        self.go()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        seconds, steps, self.net.steps = self.pacer.stop(self.device), torch.tensor(self.net.steps), 0
        if self.several:
            distributed.all_reduce(steps)
        if self.first:
            counts = {str(name): value for name, value in aggregate_metrics.to_simple_dict().items()}
            devices = next(value for name, value in counts.items() if "number of devices" in name)
            self.pacer.report(seconds, clients=int(devices), steps=steps.item())
        return not self.go(), Metrics()


def main():
    options = arguments(__doc__).parse_args()
    if options.device == "cuda":
        use_tensor_cores()
    work = Workload.read(options.workload)
    recipe, data, net = work.recipe, tensors(work, options.device), Net(build(work.name).to(options.device))
    np.random.seed(0)  # all processes must choose the same clients
    # Clients take turns, so that a round's clients are distinct, as in the other frameworks.
    sampler = get_user_sampler("minimize_reuse", list(np.random.permutation(len(data))))
    if recipe.epoch:
        users = FederatedDataset.from_slices(data, sampler)
        amount = {"local_num_epochs": 1, "local_num_steps": None}
    else:
        users = FederatedDataset(lambda user: Drawn(data[user], work.name, user_id=user), sampler)
        amount = {"local_num_epochs": None, "local_num_steps": recipe.steps}
    paced = Paced(net, options.warmup, options.rounds, options.device)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=sys.maxsize,  # the callback ends the run
            evaluation_frequency=sys.maxsize,
            train_cohort_size=recipe.cohort,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=users, val_data=users, postprocessors=[WeightByUser()]),
        PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0)),
        NNTrainHyperParams(local_batch_size=recipe.batch, local_learning_rate=recipe.lr, **amount),
        callbacks=[paced],
        send_metrics_to_platform=False,  # the platform would print them
    )
    if paced.first:
        paced.pacer.say(done=True, rounds=paced.pacer.done, **verdict(work.name, data, net.net))
    if paced.several:
        distributed.barrier()  # torchrun would end the first process if another one failed at its exit
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
