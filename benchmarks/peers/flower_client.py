"""The client of flower_rounds.py. It is a module, so that Ray's actors import it once and keep its cache; code in the
script itself would be sent with every message.
"""

from functools import cache

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from models import batches, build, tensors, use_tensor_cores
from workload import Workload

app = ClientApp()


@cache
def prepared(path, device):
    """This actor's data and model on its device, read and built once for all clients."""
    work = Workload.read(path)
    if device == "cuda":
        use_tensor_cores()
    return work, tensors(work, device), build(work.name).to(device)


@app.train()
def train(message, context):
    config = message.content["config"]
    work, data, net = prepared(config["workload"], config["device"])
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer, steps = torch.optim.SGD(net.parameters(), lr=work.recipe.lr), 0
    for x, y in batches(*data[context.node_config["partition-id"]], work.name):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        steps += 1
    # num-examples is the weight in Flower's average; with 1 it is the plain mean, as in the other frameworks.
    reply = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"num-examples": 1, "steps": steps})}
    return Message(content=RecordDict(reply), reply_to=message)
