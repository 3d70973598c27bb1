"""Asynchronous training: the messages that clients at work were sent, until their updates arrive."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ..algorithms import Message
from ..base.checks import InputError
from ..participation import Ids

_CLIENTS, _ROUNDS, _MESSAGE = "clients", "rounds", "message."


class Outstanding:
    """The downlinks of the clients at work.

    Clients that are sent work in the same round share one message, so memory follows the models in use, of which there
    are at most as many as clients at work.

    >>> outstanding = Outstanding()
    >>> outstanding.send(np.array([0, 1, 2]), 0, {"x": torch.tensor([1.0])})
    >>> outstanding.send(np.array([3]), 1, {"x": torch.tensor([5.0])})
    >>> outstanding.arrived(np.array([1, 3]))["x"].tolist()
    [[1.0], [5.0]]
    >>> len(outstanding)
    2
    """

    def __init__(self) -> None:
        self._round_of: dict[int, int] = {}
        self._messages: dict[int, Message] = {}
        self._clients_in: Counter[int] = Counter()

    def __len__(self) -> int:
        """The clients at work."""
        return len(self._round_of)

    def send(self, clients: Ids, t: int, message: Message) -> None:
        """Before round t, these clients are sent the message and begin to work."""
        for client in clients.tolist():
            if client in self._round_of:
                accepted = f"clients without work: it was sent work in round {self._round_of[client]}"
                raise InputError(f"schedule.dispatch(round={t})", client, accepted)
            self._round_of[client] = t
        if len(clients):
            self._messages[t] = message
            self._clients_in[t] += len(clients)

    def arrived(self, clients: Ids, own: Ids | None = None) -> Message:
        """The messages from which these clients trained. Their work is done.

        A message that all of them share is returned as it was sent; otherwise there is one row per client, in the order
        of the clients. With `own`, the rows of those clients only. Without clients there is no message.
        """
        for client in clients.tolist():
            if client not in self._round_of:
                accepted = "clients at work: `dispatch` has returned them, and they were not active since"
                raise InputError("schedule.active", client, accepted)
        rounds = {client: self._round_of.pop(client) for client in clients.tolist()}
        used = [rounds[client] for client in (clients if own is None else own).tolist()]
        messages = [self._messages[t] for t in used]
        for t, done in Counter(rounds.values()).items():
            self._clients_in[t] -= done
            if not self._clients_in[t]:
                del self._clients_in[t], self._messages[t]
        if len(set(used)) <= 1:
            return messages[0] if messages else {}
        return {name: torch.stack([message[name] for message in messages]) for name in messages[0]}

    def state(self) -> dict[str, Tensor]:
        """The tensors from which `restored` makes the same, in host memory. Messages are stacked by round."""
        if not self._round_of:
            return {}
        rounds = sorted(self._messages)
        names = self._messages[rounds[0]]
        stacked = {name: torch.stack([self._messages[t][name] for t in rounds]).cpu() for name in names}
        return {
            _CLIENTS: torch.tensor(list(self._round_of)),
            _ROUNDS: torch.tensor(list(self._round_of.values())),
            **{_MESSAGE + name: value for name, value in stacked.items()},
        }

    @classmethod
    def restored(cls, state: Mapping[str, Tensor], device: torch.device) -> "Outstanding":
        """Rebuilds the object from `state`, with its messages on the device."""
        outstanding = cls()
        if not state:
            return outstanding
        clients, rounds = state[_CLIENTS].numpy(), state[_ROUNDS].numpy()
        stacked = {n.removeprefix(_MESSAGE): v.to(device) for n, v in state.items() if n.startswith(_MESSAGE)}
        for place, t in enumerate(np.unique(rounds).tolist()):
            message = {name: value[place].clone() for name, value in stacked.items()}
            outstanding.send(clients[rounds == t], t, message)
        return outstanding
