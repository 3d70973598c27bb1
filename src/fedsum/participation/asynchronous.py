"""A schedule in which clients work at their own speed, and the server steps after every m arrivals."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.checks import InputError, integer, real, set_fields
from ..base.keyed import Purpose, rng
from .devices import Devices
from .distributions import LogNormal
from .pool import drawn_from
from .replay import Replay
from .schedule import Ids, Pattern

_DISPATCH, _JITTER = 1, 2
"""keep the draws of a server step apart"""


class Work(NamedTuple):
    """The local work of a client: one step and messages of zero bytes, unless a run sets them."""

    steps: int | NDArray[np.int64] = 1
    down_bytes: int = 0
    up_bytes: int = 0


class ServerStep(NamedTuple):
    """One step of the server."""

    sent: Ids
    """the clients that are sent the model before the step"""
    active: Ids
    """the clients whose updates arrive"""
    time: float
    """when the last of these updates arrives, in seconds"""


@dataclass(frozen=True)
class Asynchronous:
    """Asynchronous training: the server merges updates in the order in which they arrive and does not wait for others.

    `concurrency` clients train at the same time. A "round" is one server step: the server waits for the next `buffer`
    updates, merges them and sends the new model to as many clients. A client trains from the model that it was sent.
    This takes the time of downlink, local steps and uplink on its device. If two updates arrive at the same time, the
    client that was sent its model earlier is first, then the client with the smaller id.

    The arrivals are a function of the seed. A server step depends on all earlier steps, which are computed first, at a
    cost of O(`buffer` log `concurrency`) per step.

    Args:
      n: N, the number of clients.
      devices: the clients' `Devices`: seconds per step, and link speeds.
      buffer: m, updates per server step.
      concurrency: number of clients that train at the same time; default: all. If fewer, the next clients are drawn
        uniformly from the idle clients.
      jitter: standard deviation of the logarithm of a random factor on each client's time; its median is 1.

    >>> schedule = Asynchronous(3, Devices(seconds_per_step=[1, 2, 5]), buffer=1)
    >>> [schedule.active(seed=0, round=t).tolist() for t in range(6)]
    [[0], [1], [0], [0], [1], [0]]
    >>> schedule.dispatch(seed=0, round=0), schedule.dispatch(seed=0, round=1)
    (array([0, 1, 2]), array([0]))
    >>> schedule.time(seed=0, round=5)
    4.0
    """

    n: int
    devices: Devices
    buffer: int
    concurrency: int | None = None
    jitter: float = 0.0
    _work: Work = field(default=Work(), init=False, repr=False, compare=False)
    _replay: Replay[ServerStep] = field(default_factory=Replay, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        n = integer("n", self.n, low=1)
        if not isinstance(self.devices, Devices):
            raise InputError("devices", self.devices, "fedsum.Devices(seconds_per_step=..., up=..., down=...)")
        if self.devices.n not in (None, n):
            raise InputError("devices.n", self.devices.n, f"the schedule has {n} clients")
        concurrency = self.concurrency
        if concurrency is not None:
            concurrency = integer("concurrency", concurrency, low=1, high=n, high_name="n")
        most = ("n", n) if concurrency is None else ("concurrency", concurrency)
        buffer = integer("buffer", self.buffer, low=1, high=most[1], high_name=most[0])
        set_fields(self, n=n, buffer=buffer, concurrency=concurrency, jitter=real("jitter", self.jitter, low=0))

    def during(self, *, steps: int | NDArray[np.int64], down_bytes: int, up_bytes: int) -> "Asynchronous":
        """This schedule for a run with these numbers of local steps and these sizes of messages.

        simulate() calls it. Without it, as in `fedsum delays`, a client takes one step and messages have zero bytes.
        """
        schedule = replace(self)
        set_fields(schedule, _work=Work(steps, down_bytes, up_bytes))
        return schedule

    def active(self, seed: int, round: int) -> Ids:
        """The clients whose updates the server merges in this step."""
        return self._step(seed, round).active.copy()

    def dispatch(self, seed: int, round: int) -> Ids:
        """The clients that are sent the model before this step, and start to train."""
        return self._step(seed, round).sent.copy()

    def time(self, seed: int, round: int) -> float:
        """When this server step takes place, in simulated seconds."""
        return self._step(seed, round).time

    def describe(self, rounds: int | None = None) -> Pattern:
        return Pattern(N=self.n)

    def _step(self, seed: int, round: int) -> ServerStep:
        return self._replay.at(seed, integer("round", round, low=0), self._steps)

    def _steps(self, seed: int, steps: list[ServerStep]) -> Iterator[ServerStep]:
        working = self.n if self.concurrency is None else self.concurrency
        arrivals: list[tuple[float, int, int]] = []
        idle, sent, time = np.arange(self.n), np.arange(self.n), 0.0
        if working < self.n:
            sent = drawn_from(idle, self.n, working, rng(seed, Purpose.SCHEDULE, 0, _DISPATCH))
        while True:
            t = len(steps)
            for client, seconds in zip(sent.tolist(), self._seconds(seed, t, sent).tolist(), strict=True):
                heappush(arrivals, (time + seconds, t, client))
            arrived = [heappop(arrivals) for _ in range(self.buffer)]
            time = arrived[-1][0]
            active = np.sort(np.array([client for _, _, client in arrived], dtype=np.int64))
            yield ServerStep(sent, active, time)
            sent = active
            if working < self.n:
                free = self.n - working + self.buffer
                idle[self.n - working : free] = active
                sent = drawn_from(idle, free, self.buffer, rng(seed, Purpose.SCHEDULE, t + 1, _DISPATCH))

    def _seconds(self, seed: int, t: int, clients: Ids) -> NDArray[np.float64]:
        steps, down_bytes, up_bytes = self._work
        own_steps = steps if isinstance(steps, int) else steps[clients]
        seconds = self.devices.seconds(clients, seed, steps=own_steps, down_bytes=down_bytes, up_bytes=up_bytes)
        if self.jitter:
            seconds = seconds * LogNormal(1.0, self.jitter).draw(rng(seed, Purpose.SCHEDULE, t, _JITTER), len(clients))
        return seconds
