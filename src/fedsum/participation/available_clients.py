"""Availability: the intervals of time in which clients can take part, as rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..base.checks import InputError, integer, nearest, real
from .interval_files import has_intervals, read_intervals
from .schedule import Ids, Pattern, Schedule
from .span_index import SpanIndex, merged
from .trace import MOST_ROUNDS, Trace
from .trace_values import all_names, as_time, unit_since_1970

COVERS = ("whole", "any")
_ROUNDING = 1e-6
"""a time this near to the boundary of two rounds, in rounds, lies on it"""


@dataclass(frozen=True, eq=False, repr=False)
class Availability:
    """The clients' availability as a schedule: all available clients are active. `Sampled` chooses some of them.

    Use `Availability.read`, `Availability.from_intervals` or `Availability.of`. A round costs O(available clients).

    Args:
      names: the clients' names by id; `names[0]` is client 0.
      index: the spans of rounds in which clients are available.
      repeat: start over after the last round. Otherwise a round after it is an error.
      source: the arguments of `Availability.read`; None if it was not read from a file.
    """

    names: tuple[str, ...]
    index: SpanIndex
    repeat: bool = False
    source: Mapping[str, Any] | None = None

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        round_length: float | None = None,
        offset: float | str | None = None,
        cover: Literal["whole", "any"] = "whole",
        rounds: int | None = None,
        clients: int | Sequence[str] | None = None,
        repeat: bool = False,
        client_column: str | None = None,
        start_column: str | None = None,
        end_column: str | None = None,
        time_column: str | None = None,
    ) -> "Availability":
        """Reads intervals with the columns `client,start,end`, or a trace that `Trace.read` accepts.

        A client is available from `start` until just before `end`. Times are numbers or ISO 8601 dates. Intervals of
        one client may overlap. In a trace, a client is available in the rounds of its rows.

        Args:
          path: a .csv, .jsonl or .parquet file; the first two may be compressed, as in .csv.gz.
          round_length: length of a round, in the unit of the times (seconds for dates).
          offset: the time at which round 0 starts; default: the earliest start.
          cover: "whole": a client is in a round if it is available for the whole of it; "any": at any time in it.
          rounds: the number of rounds; default: up to the last end. With "whole", a last round that is cut short by
            the end of the file does not count.
          clients: all N clients, as in `Trace.read`.
          repeat: start over after the last round. Otherwise a round after it is an error.
          client_column: the name of the column with clients, if it is not `client`.
          start_column: the name of the column with starts, if it is not `start`.
          end_column: the name of the column with ends, if it is not `end`.
          time_column: the name of a trace's column with times, if it is not `time`.
        """
        path = Path(path)
        if not has_intervals(path, start_column, end_column):
            if offset is not None:
                raise InputError("offset", offset, f"leave it out: {path} has no columns start and end")
            columns: dict[str, Any] = {"client_column": client_column, "time_column": time_column}
            trace = Trace.read(path, round_length=round_length, clients=clients, repeat=repeat, **columns)
            made = cls.of(trace, rounds=rounds)
        else:
            if round_length is None:
                raise InputError("round_length", None, f"a number (--round-length): {path} has columns of times")
            intervals = read_intervals(path, client_column, start_column, end_column)
            names = all_names(intervals.clients, clients)
            id_of = {name: i for i, name in enumerate(names)}
            for place, name in zip(intervals.places, intervals.clients, strict=True):
                if name not in id_of:
                    raise InputError(place, name, f"not among the {len(names)} clients given")
            origin = None if offset is None else as_time("offset", offset)
            made = cls.from_intervals(
                [id_of[name] for name in intervals.clients],
                intervals.starts,
                intervals.ends,
                n=names,
                round_length=round_length,
                offset=None if origin is None else origin / unit_since_1970(origin)[1],
                cover=cover,
                rounds=rounds,
                repeat=repeat,
            )
        source: dict[str, Any] = {
            "path": str(path.resolve()),
            "round_length": round_length,
            "offset": offset,
            "cover": cover,
        }
        source |= {"rounds": rounds, "clients": clients, "repeat": repeat, "client_column": client_column}
        source |= {"start_column": start_column, "end_column": end_column, "time_column": time_column}
        return cls(made.names, made.index, made.repeat, source)

    @classmethod
    def from_intervals(
        cls,
        clients: ArrayLike,
        starts: ArrayLike,
        ends: ArrayLike,
        *,
        n: int | Sequence[str],
        round_length: float,
        offset: float | None = None,
        cover: Literal["whole", "any"] = "whole",
        rounds: int | None = None,
        repeat: bool = False,
    ) -> "Availability":
        """From three arrays with one entry per interval; `n` is the number of clients, or their names.

        The other arguments are those of `read`.

        >>> phones = Availability.from_intervals([0, 1], [0, 30], [120, 130], n=2, round_length=60)
        >>> [phones.active(seed=0, round=t).tolist() for t in range(phones.rounds)]
        [[0], [0, 1]]
        """
        if cover not in COVERS:
            raise InputError("cover", cover, nearest(str(cover), COVERS))
        names = tuple(map(str, range(integer("n", n, low=1)))) if isinstance(n, int | np.integer) else tuple(n)
        ids = np.asarray(clients, dtype=np.int64)
        start, end = np.asarray(starts, dtype=np.float64), np.asarray(ends, dtype=np.float64)
        length = real("round_length", round_length, above=0)
        if not len(ids) == len(start) == len(end) or not len(ids):
            raise InputError("intervals", (len(ids), len(start), len(end)), "as many clients as starts and ends")
        wrong = np.flatnonzero((ids < 0) | (ids >= len(names)))
        if len(wrong):
            raise InputError(f"clients[{wrong[0]}]", int(ids[wrong[0]]), f"an id from 0 to {len(names) - 1}")
        wrong = np.flatnonzero(~(np.isfinite(start) & np.isfinite(end) & (end >= start)))
        if len(wrong):
            raise InputError(f"ends[{wrong[0]}]", float(end[wrong[0]]), "a finite time, not before its start")
        origin = float(start.min()) if offset is None else real("offset", offset)
        if cover == "whole":  # two intervals that touch may cover a round together
            ids, start, end = merged(ids, start, end)
        first, last = _span(cover, (start - origin) / length, (end - origin) / length)
        if rounds is None and (end.max() - origin) / length > MOST_ROUNDS:
            raise InputError("end", float(end.max()), f"lies beyond the {MOST_ROUNDS} rounds that a record may have")
        recorded = max(1, int(last.max())) if rounds is None else rounds
        return cls(names, _index(ids, first, last, recorded, cover), repeat)

    @classmethod
    def of(cls, schedule: Schedule, rounds: int | None = None, seed: int = 0) -> "Availability":
        """The availability that a schedule gives: in each round, its active clients.

        Args:
          schedule: a trace, or any schedule together with `rounds`.
          rounds: the number of rounds; default: those of the trace.
          seed: the schedule's seed.
        """
        recorded = getattr(schedule, "rounds", None)
        T = integer("rounds", recorded if rounds is None else rounds, low=1)
        sets = [schedule.active(seed, t) for t in range(T if recorded is None else min(T, recorded))]
        ids, first = np.concatenate(sets), np.repeat(np.arange(len(sets)), [len(active) for active in sets])
        names = getattr(schedule, "names", None) or tuple(map(str, range(schedule.n)))
        repeat = schedule.recorded.repeat if isinstance(schedule, Trace) else False
        return cls(names, _index(ids, first, first + 1, T, "any"), repeat)

    @property
    def n(self) -> int:
        return len(self.names)

    @property
    def rounds(self) -> int:
        """The number of rounds, before it starts over."""
        return self.index.rounds

    def active(self, seed: int, round: int) -> Ids:
        return self.index.all(self.recorded_round(round))

    def recorded_round(self, round: int) -> int:
        """The round of the record, which starts over with `repeat`."""
        if round < 0 or (round >= self.rounds and not self.repeat):
            raise InputError("round", round, f"from 0 to {self.rounds - 1}, or repeat=True to start over")
        return round % self.rounds

    def intervals(self, round_length: float = 1.0) -> tuple[Ids, NDArray[np.float64], NDArray[np.float64]]:
        """Client, start and end of each interval, with round 0 at time 0; one per span of rounds."""
        clients, first, end = self.index.spans
        length = real("round_length", round_length, above=0)
        return clients, first.astype(np.float64) * length, end.astype(np.float64) * length

    def describe(self, rounds: int | None = None) -> Pattern:
        return Pattern(N=self.n)

    def __repr__(self) -> str:
        mean = float((self.index.spans[2] - self.index.spans[1]).sum()) / self.rounds
        return f"Availability({self.n} clients, {self.rounds} rounds, {mean:.3g} available per round)"


def _span(cover: str, start: NDArray[np.float64], end: NDArray[np.float64]) -> tuple[Ids, Ids]:
    """First round and first round after, from times in rounds."""
    limit = float(MOST_ROUNDS)
    start, end = np.clip(start, -limit, limit), np.clip(end, -limit, limit)
    if cover == "whole":
        return np.ceil(start - _ROUNDING).astype(np.int64), np.floor(end + _ROUNDING).astype(np.int64)
    first = np.floor(start + _ROUNDING).astype(np.int64)
    # An interval of length 0 is an instant, which lies in one round.
    return first, np.maximum(first + 1, np.ceil(end - _ROUNDING).astype(np.int64))


def _index(clients: Ids, first: Ids, end: Ids, rounds: int, cover: str) -> SpanIndex:
    integer("rounds", rounds, low=1, high=MOST_ROUNDS)
    first, end = np.maximum(first, 0), np.minimum(end, rounds)
    kept = first < end
    if not kept.any():
        accepted = "no client is available for a whole round; use a shorter round_length, or cover='any'"
        raise InputError("cover", cover, accepted if cover == "whole" else "no client is available in these rounds")
    clients, first, end = merged(clients[kept], first[kept], end[kept])
    return SpanIndex(clients, first, end, rounds)
