"""The client app: the same algorithms and the same local loop, one client a SuperNode."""

from collections.abc import Callable
from pathlib import Path

import torch
from flwr.app import ConfigRecord, Context, RecordDict
from flwr.app import Message as Letter
from flwr.clientapp import ClientApp

from ..algorithms import Algorithm
from ..base.checks import InputError, integer
from ..tasks import BaseTask
from .protocol import Order
from .settings import Settings
from .store import Store
from .wire import from_reply, to_order
from .worker import answer


def client_app(
    task: Callable[[int, int], BaseTask],
    *,
    algorithm: Algorithm | None = None,
) -> ClientApp:
    """A ClientApp for `flwr run`.

    A SuperNode is started with `--node-config 'client-id=3 state="/var/lib/fedsum"'`: which client it is, unless its
    registered key says so, and where its state lies, which must outlive it (default: ~/.fedsum/state).

    Args:
      task: makes what client i of N trains, `task(i, N)`; called on the client's machine, for every order.
      algorithm: default: the one that the app's configuration names.
    """
    app = ClientApp()

    @app.query("hello")
    def hello(letter: Letter, context: Context) -> Letter:
        said = ConfigRecord({"client": _client_id(context)})
        return Letter(RecordDict({"hello": said}), reply_to=letter)

    def work(letter: Letter, context: Context) -> Letter:
        order = to_order(letter.content)
        own = _client_id(context, default=order.slip.client)
        if own != order.slip.client:
            raise InputError("client-id", own, f"the server takes this SuperNode for client {order.slip.client}")
        chosen = algorithm or Settings.read(context.run_config).algorithm
        folder = context.node_config.get("state") or Path.home() / ".fedsum" / "state"
        store = Store(str(folder), order.slip.job, order.slip.client)
        return Letter(from_reply(answer(order, chosen, _bound(task, order), store)), reply_to=letter)

    app.train("work")(work)
    app.train("farewell")(work)
    return app


def _bound(task: Callable[[int, int], BaseTask], order: Order) -> BaseTask:
    """The client's task in the server's precision."""
    dtype = getattr(torch, order.terms.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise InputError("dtype", order.terms.dtype, "float32 or float64")
    return task(order.slip.client, order.terms.now.N).to(torch.device("cpu"), dtype)


def _client_id(context: Context, default: int | None = None) -> int:
    given = context.node_config.get("client-id", default)
    return integer("client-id (in the SuperNode's --node-config)", given, low=0)
