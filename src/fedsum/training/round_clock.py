"""Simulated time: how long a round takes on the clients' devices, and which of its clients are late."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from ..algorithms import Algorithm, Round, Traffic, count
from ..participation import Devices, Ids
from .options import Options
from .state import RunState


@dataclass(frozen=True)
class Closed:
    """A round that is over."""

    active: Ids
    """the clients whose messages arrived in time"""
    late: Ids
    """the other clients that were asked; their work is lost"""
    seconds: float
    """from the start of the round until it closed"""
    lost: Traffic
    """the messages that the server sent to late clients"""


class RoundClock:
    """Closes rounds, given the clients' devices.

    A client needs the time of its downlink, its K steps and its uplink; the server's message after the merge, if the
    algorithm has one, counts with the downlink. A round closes when `enough` of its clients are done, by default all,
    and at the latest at the deadline.
    """

    def __init__(self, algorithm: Algorithm, devices: Devices, options: Options) -> None:
        self._algorithm, self._devices, self._options = algorithm, devices, options

    def close(self, asked: Ids, state: RunState, now: Round) -> Closed:
        """Who of the clients that were asked takes part, and how long the round takes."""
        algorithm, options = self._algorithm, self._options
        down = algorithm.downlink(state.server, now)
        farewell = count(algorithm.farewell(state.server, now))
        client = state.clients.initial
        # The size of an uplink is that of any gradient's.
        G = torch.zeros_like(state.server["x"])
        uplink, _ = algorithm.report(client, down, algorithm.plan(client, down, now), G, now)
        seconds = self._devices.seconds(
            asked,
            options.seed,
            steps=now.K,
            down_bytes=(count(down) + farewell).bytes,
            up_bytes=count(uplink).bytes,
        )
        if not len(asked):
            return Closed(asked, asked, 0.0, Traffic())
        needed = max(1, math.ceil((options.enough or 1.0) * len(asked) - 1e-9))
        end = float(np.partition(seconds, needed - 1)[needed - 1])
        if options.deadline is not None:
            end = min(end, options.deadline)
        in_time = seconds <= end
        late = asked[~in_time]
        return Closed(asked[in_time], late, end, count(down) * len(late))
