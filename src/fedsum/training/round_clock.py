"""Simulated time: how long a round takes on the clients' devices, and which of its clients are late."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from ..algorithms import Algorithm, Round, Traffic, count
from ..engine import StepCounts
from ..participation import Asynchronous, Devices, Ids, Schedule
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


class MessageSizes(NamedTuple):
    """The sizes of one client's messages in a round."""

    down: Traffic
    up: Traffic
    farewell: Traffic


def message_sizes(algorithm: Algorithm, state: RunState, now: Round) -> MessageSizes:
    down, client = algorithm.downlink(state.server, now), state.clients.initial
    # The size of an uplink is that of any gradient's.
    G = torch.zeros_like(state.server["x"])
    uplink, _ = algorithm.report(client, down, algorithm.plan(client, down, now), G, now)
    return MessageSizes(count(down), count(uplink), count(algorithm.farewell(state.server, now)))


def schedule_of_run(
    schedule: Schedule, algorithm: Algorithm, state: RunState, now: Round, counts: StepCounts
) -> Schedule:
    """The schedule; if its arrivals depend on a client's work, for the steps and messages of this run."""
    if not isinstance(schedule, Asynchronous):
        return schedule
    sizes = message_sizes(algorithm, state, now)
    down_bytes = (sizes.down + sizes.farewell).bytes
    return schedule.during(steps=counts, down_bytes=down_bytes, up_bytes=sizes.up.bytes)


class RoundClock:
    """Closes rounds, given the clients' devices.

    A client needs the time of its downlink, of its own number of steps and of its uplink; the server's message after
    the merge, if the algorithm has one, counts with the downlink. A round closes when `enough` of its clients are done,
    by default all, and at the latest at the deadline.
    """

    def __init__(self, algorithm: Algorithm, devices: Devices, options: Options, counts: StepCounts) -> None:
        self._algorithm, self._devices, self._options, self._counts = algorithm, devices, options, counts

    def close(self, asked: Ids, state: RunState, now: Round) -> Closed:
        """Who of the clients that were asked takes part, and how long the round takes."""
        options, sizes = self._options, message_sizes(self._algorithm, state, now)
        seconds = self._devices.seconds(
            asked,
            options.seed,
            steps=self._counts if isinstance(self._counts, int) else self._counts[asked],
            down_bytes=(sizes.down + sizes.farewell).bytes,
            up_bytes=sizes.up.bytes,
        )
        if not len(asked):
            return Closed(asked, asked, 0.0, Traffic())
        needed = max(1, math.ceil((options.enough or 1.0) * len(asked) - 1e-9))
        end = float(np.partition(seconds, needed - 1)[needed - 1])
        if options.deadline is not None:
            end = min(end, options.deadline)
        in_time = seconds <= end
        late = asked[~in_time]
        return Closed(asked[in_time], late, end, sizes.down * len(late))
