"""K steps of SGD over fedsum's protocol, and the same local work for Flower's own FedAvg."""

import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

from fedsum import FedAvg, LocalPlan
from fedsum.engine import client_work
from fedsum.flower import client_app

from .task import task

app = client_app(lambda client, n: task(n), algorithm=FedAvg())


@app.train()
def plain(message, context):
    config = context.run_config
    x = torch.from_numpy(message.content["arrays"]["x"].numpy())
    K, rate, client = config["local-steps"], config["eta-l"], context.node_config["client-id"]
    plan = LocalPlan(start=x, step=rate)
    t = message.content["config"]["server-round"]
    G = client_work(task(config["clients"]), plan, client, t, seed=0, K=K, batch_size=config["batch-size"])
    arrays = ArrayRecord({"x": Array((x - rate * K * G).numpy())})
    metrics = MetricRecord({"num-examples": 64})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
