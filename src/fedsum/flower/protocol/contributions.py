"""What each client has contributed to the server's sums: the h_i that its uplinks add up to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...algorithms import Algorithm, Message, Round, State
from .norm_bound import EXACT, SKETCHED, NormSketch, norm
from .precision import widened
from .probes import example_uplink, stateful, sums, telescopes
from .server_state import ServerState


@dataclass(frozen=True)
class Contribution:
    """What merging an uplink would do."""

    part: Message
    """what it adds to the server's sums"""
    row: State
    """the server's memory of the client afterwards"""
    total: Message
    """with a table: the client's contributions so far, this one included"""
    sketch: Tensor | None
    """without a table: a sketch of the same"""
    norm: float
    """the norm of the same; for an algorithm without sums over rounds, the norm of this part"""
    tolerance: float
    """the factor by which the norm may be off"""


class Contributions:
    """Computes contributions from uplinks, records them, and computes what removes them.

    Args:
      algorithm: the algorithm.
      table: whether the server keeps the total of each client. Otherwise it keeps a sketch.
    """

    def __init__(self, algorithm: Algorithm, *, table: bool) -> None:
        self.algorithm, self.table, self.telescopes = algorithm, table, telescopes(algorithm)
        self.sums = sums(algorithm)
        self._sketch = NormSketch(0)

    def of(self, state: ServerState, client: int, uplink: Message, now: Round) -> Contribution:
        """The contribution of an uplink to the sums. A client that starts over reports its whole state."""
        first = client not in state.last
        row = state.rows.get(client, self.algorithm.init_row(state.start))
        row = self.algorithm.identify(row, torch.tensor(client))
        part, row = self.algorithm.digest(row, widened(self.algorithm.unpack(uplink, state.start)), now)
        if not self.telescopes:
            return Contribution(part, row, {}, None, norm(part), EXACT)
        if self.table:
            previous = state.table.get(client, {name: torch.zeros_like(value) for name, value in part.items()})
            total = part if first else {name: previous[name] + value for name, value in part.items()}
            if first:  # its earlier contributions are subtracted
                part = {name: value - previous[name] for name, value in part.items()}
            return Contribution(part, row, total, None, norm(total), EXACT)
        if self._sketch.key != state.sketch_key:
            self._sketch = NormSketch(state.sketch_key)
        sketch = self._sketch(part) if first else state.sketches[client] + self._sketch(part)
        exact = first or len(sketch) == sum(value.numel() for value in part.values())
        size = norm(part) if first else float(sketch.norm())
        return Contribution(part, row, {}, sketch, size, EXACT if exact else SKETCHED)

    def record(self, state: ServerState, client: int, contribution: Contribution) -> None:
        """Notes a contribution that is merged."""
        if contribution.row:
            state.rows[client] = contribution.row
        if contribution.total:
            state.table[client] = contribution.total
        if contribution.sketch is not None:
            state.sketches[client] = contribution.sketch
        state.first_norms.setdefault(client, contribution.norm)

    def total(self, parts: Sequence[Message], state: ServerState, now: Round) -> Message:
        """The sum of what contributions add to the server's sums; zeros if there are none."""
        if parts:
            return {name: torch.stack([part[name] for part in parts]).sum(0) for name in parts[0]}
        uplink = widened(self._example(state, now))
        part, _ = self.algorithm.digest(self.algorithm.init_row(state.start), uplink, now)
        return {name: torch.zeros_like(value) for name, value in part.items()}

    def _example(self, state: ServerState, now: Round) -> Message:
        return self.algorithm.unpack(example_uplink(self.algorithm, state.start, now), state.start)

    def withdrawal(self, state: ServerState, client: int, now: Round) -> Message | None:
        """What takes the client's total out of the sums: {} if there is nothing in them, None if it is not known."""
        if not self.telescopes or (client not in state.last and client not in state.table):
            return {}
        if self.table:
            return {name: -value for name, value in state.table[client].items()}
        if stateful(self.algorithm):
            return None
        # The server remembers the client's last report. A report of zero takes its place.
        zero = {name: torch.zeros_like(value) for name, value in widened(self._example(state, now)).items()}
        return self.algorithm.digest(state.rows[client], zero, now)[0]

    def drift(self, state: ServerState, now: Round) -> float:
        """How far the server's sums are from those of a single merge of everything in the table, relatively.

        Args:
          state: a state with a table.
          now: the record of the epoch's first round.
        """
        total = self.total([state.table[client] for client in sorted(state.table)], state, now)
        initial = widened(self.algorithm.init_server(state.start, now), but="x")
        recomputed = self.algorithm.merge(initial, total, now.N, now)
        difference = size = 0.0
        for name in self.sums:
            value = state.server[name]
            difference += float((value - recomputed[name]).square().sum())
            size += float(value.square().sum())
        return math.sqrt(difference / size if size else difference)

    def forget(self, state: ServerState, client: int) -> None:
        """Removes all that the server remembers of a client's contributions."""
        for memory in (state.last, state.rows, state.table, state.sketches):
            memory.pop(client, None)
