"""Every algorithm over a network that carries bytes: one client at a time, each with its own state."""

import io
import json
from dataclasses import replace

import numpy as np
import torch

from fedsum import DelayMeter, Round
from fedsum.engine import mean_gradient


def encode(message):
    """A message as bytes: a line of names, types and shapes, then the numbers."""
    head = [(name, str(v.numpy().dtype), list(v.shape)) for name, v in message.items()]
    return json.dumps(head).encode() + b"\n" + b"".join(v.numpy().tobytes() for v in message.values())


def decode(data):
    stream = io.BytesIO(data)
    message = {}
    for name, kind, shape in json.loads(stream.readline()):
        kind = np.dtype(kind)
        values = np.frombuffer(stream.read(kind.itemsize * int(np.prod(shape))), kind)
        message[name] = torch.tensor(values.reshape(shape))
    return message


class Client:
    """One client's machine: its data and its state; it receives and sends bytes."""

    def __init__(self, algorithm, task, i, x0, *, K, seed):
        self.algorithm, self.task, self.i, self.K, self.seed = algorithm, task, i, K, seed
        self.state = algorithm.init_client(decode(x0)["x"])

    def work(self, down, now):
        down = decode(down)
        self.state = self.algorithm.keyed(self.state, torch.tensor(self.i), self.seed)
        plan = self.algorithm.plan(self.state, down, now)
        batches = self.task.batches(self.seed, now.t, self.i, self.K, 1)
        G = mean_gradient(lambda x, b: self.task.gradient(x, self.i, b), plan, batches)
        uplink, self.state = self.algorithm.report(self.state, down, plan, G, now)
        return encode(uplink)

    def farewell(self, message, now):
        self.state = self.algorithm.receive(self.state, decode(message), now)


def over_the_wire(task, algorithm, schedule, *, rounds, K, eta_l, eta_g, seed):
    """The final server state, every client's state, the server's memory of each client, and tau per round."""
    x0 = task.init(seed)
    server, clients, rows = None, {}, {}
    meter, mail = DelayMeter(task.n), {}
    for t in range(rounds):
        now = Round(t=t, N=task.n, K=K, eta_l=eta_l(t), eta_g=eta_g, seen=len(clients))
        server = server or algorithm.init_server(x0, now)
        active = schedule.active(seed, t)
        meter.update(active)
        down = encode(algorithm.downlink(server, now))
        total = {}
        sent = schedule.dispatch(seed, t) if hasattr(schedule, "dispatch") else active
        mail |= dict.fromkeys(sent.tolist(), down)
        for i in active.tolist():
            if i not in clients:
                clients[i] = Client(algorithm, task, i, encode({"x": x0}), K=K, seed=seed)
                rows[i] = algorithm.init_row(x0)
            uplink = algorithm.unpack(decode(clients[i].work(mail.pop(i), now)), x0)
            row = algorithm.identify(rows[i], torch.tensor(i))
            contribution, rows[i] = algorithm.digest(row, uplink, now)
            for name, value in contribution.items():
                total[name] = total.get(name, 0) + value
        if not len(active):
            total = sum_over_nobody(algorithm, server, x0, now)
        now = replace(now, seen=len(clients))
        server = algorithm.merge(server, total, len(active), now)
        farewell = algorithm.farewell(server, now)
        for i in active.tolist():
            clients[i].farewell(encode(farewell), now)
    return server, {i: client.state for i, client in clients.items()}, rows, meter.tau


def sum_over_nobody(algorithm, server, x0, now):
    def nobody(state):
        return {name: v.new_empty(0, *v.shape) for name, v in state.items()}

    client, row = nobody(algorithm.init_client(x0)), nobody(algorithm.init_row(x0))
    down = algorithm.downlink(server, now)
    plan = algorithm.plan(client, down, now)
    uplink, _ = algorithm.report(client, down, plan, x0.new_empty(0, len(x0)), now)
    contribution, _ = algorithm.digest(row, algorithm.unpack(uplink, x0), now)
    return {name: v.sum(0) for name, v in contribution.items()}
