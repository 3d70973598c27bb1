"""The Flower ClientApp: the same algorithms and the same local loop, one client per SuperNode."""

import time
from collections.abc import Callable
from pathlib import Path

import torch
from flwr.app import ConfigRecord, Context, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.clientapp import ClientApp

from ..algorithms import Algorithm
from ..base.checks import InputError, integer
from ..tasks import BaseTask
from .deployment import configured_algorithm
from .protocol import Order, answer
from .storage import ClientStore
from .transport.wire import CLOCK, from_reply, to_order


def client_app(
    task: Callable[[int, int], BaseTask],
    *,
    algorithm: Algorithm | None = None,
) -> ClientApp:
    """A ClientApp for `flwr run`.

    A SuperNode is started with `--node-config 'client-id=3 state="/var/lib/fedsum"'`. `client-id` is required unless
    the SuperNode authenticates with a registered key. `state` is the folder of the client's state (default:
    ~/.fedsum/state); it must outlive the SuperNode.

    Args:
      task: `task(i, N)` returns the task of client i of N. Called on the client's machine, for every order.
      algorithm: default: the algorithm that the app's configuration names.
    """
    app = ClientApp()

    @app.query("hello")
    def hello(message: FlowerMessage, context: Context) -> FlowerMessage:
        identity = ConfigRecord({"client": _client_id(context)})
        return _reply(message, RecordDict({"hello": identity}))

    def work(message: FlowerMessage, context: Context) -> FlowerMessage:
        order = to_order(message.content)
        client = order.step_id.client
        own_id = _client_id(context, default=client)
        if own_id != client:
            raise InputError("client-id", own_id, f"the server sent an order for client {client}")
        chosen = algorithm or configured_algorithm(context.run_config)
        folder = context.node_config.get("state") or Path.home() / ".fedsum" / "state"
        store = ClientStore(str(folder), order.step_id.job, client)
        return _reply(message, from_reply(answer(order, chosen, _task_of(order, task), store)))

    app.train("work")(work)
    app.train("farewell")(work)
    return app


def _reply(message: FlowerMessage, content: RecordDict) -> FlowerMessage:
    """A reply that lives as long as the order, whatever this machine's clock says. The server checks the clock."""
    content[CLOCK] = ConfigRecord({"seconds": time.time()})
    reply = FlowerMessage(content, reply_to=message)
    # Flower would give the reply a lifetime that ends in the past if the clock is ahead, and the SuperLink refuses it.
    reply.metadata.created_at, reply.metadata.ttl = message.metadata.created_at, message.metadata.ttl
    return reply


def _task_of(order: Order, task: Callable[[int, int], BaseTask]) -> BaseTask:
    """The client's task in the precision of the server's vectors."""
    dtype = getattr(torch, order.terms.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise InputError("dtype", order.terms.dtype, "float32 or float64")
    return task(order.step_id.client, order.terms.now.N).to(torch.device("cpu"), dtype)


def _client_id(context: Context, default: int | None = None) -> int:
    value = context.node_config.get("client-id", default)
    if value is None and "partition-id" in context.node_config:
        accepted = "required; Flower's simulations do not give it: fedsum.simulate trains the same algorithm and task"
        raise InputError("client-id", value, accepted)
    return integer("client-id (in the SuperNode's --node-config)", value, low=0)
