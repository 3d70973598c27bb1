"""A recorded schedule: a file of active clients per round or time."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..base.checks import InputError, real
from .explicit import Explicit
from .schedule import Ids, Pattern
from .trace_files import TraceRows
from .trace_values import TimeColumn, all_names, as_client, as_round, in_seconds

MOST_ROUNDS = 10_000_000
_ROWS_SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """A recorded schedule: the active clients of each round, for example from a log file.

    Args:
      names: the clients' names by id; `names[0]` is client 0.
      recorded: the active clients per round.
      source: the arguments of `Trace.read`; None if the trace was not read from a file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "trace.csv")
    ...     _ = path.write_text("round,client\\n0,ann\\n0,bob\\n1,ann\\n")
    ...     trace = Trace.read(path)
    >>> trace.names, trace.active(seed=0, round=1)
    (('ann', 'bob'), array([0]))
    """

    names: tuple[str, ...]
    recorded: Explicit
    source: Mapping[str, Any] | None = None

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        round_length: float | None = None,
        clients: int | Sequence[str] | None = None,
        repeat: bool = False,
        client_column: str | None = None,
        time_column: str | None = None,
    ) -> "Trace":
        """Reads a trace with the columns `round,client`, or `time,client` together with a round length.

        Rounds count from 0. Times are numbers or ISO 8601 dates. The earliest time is the start of round 0. A client
        with several times within a round counts once. Client names may be any text. Other columns are ignored.

        Args:
          path: a .csv, .jsonl or .parquet file; the first two may be compressed, as in .csv.gz.
          round_length: length of a round, in the unit of `time` (seconds for dates). Numbers that can only be
            milliseconds since 1970, or a smaller unit, are converted to seconds, with a warning.
          clients: all N clients, including clients that are not in the file: a list of names in the order of their
            ids, or the number N. With N, names that are whole numbers are the ids. Other names are sorted and get the
            first ids. Default: the names in the file, sorted (by number if all are whole numbers).
          repeat: start over after the last recorded round. Otherwise a round after it is an error.
          client_column: the name of the column with clients, if it is not `client`.
          time_column: the name of the column with times, if it is not `time`.
        """
        path = Path(path)
        rows = TraceRows(path, client_column, time_column)
        if rows.clock == "time":
            if round_length is None:
                raise InputError("round_length", None, f"a number (--round-length): {path} has a column of times")
            length = real("round_length", round_length, above=0)
        elif round_length is not None:
            raise InputError("round_length", round_length, f"leave it out: {path} has a column 'round'")

        places: list[str] = []
        times: list[float] = []
        clients_seen: list[str] = []
        clock = TimeColumn()
        for place, time, client in rows:
            places.append(place)
            times.append(clock.read(place, time) if rows.clock == "time" else as_round(place, time))
            clients_seen.append(as_client(place, client))
        if not times:
            raise InputError("trace", str(path), "at least one line after the header")

        if rows.clock == "time":
            times = in_seconds(path, times)
        names = all_names(clients_seen, clients)
        id_of = {name: i for i, name in enumerate(names)}
        start = min(times)
        sets: dict[int, dict[int, str]] = {}
        for place, time, client in zip(places, times, clients_seen, strict=True):
            if client not in id_of:
                raise InputError(place, client, f"not among the {len(names)} clients given")
            # A time at the boundary of two rounds, up to rounding, belongs to the later round.
            elapsed = (time - start) / length + 1e-9 if rows.clock == "time" else time
            if not elapsed < MOST_ROUNDS:
                raise InputError(place, time, f"lies beyond the {MOST_ROUNDS} rounds that a trace may have")
            round = int(elapsed)
            first_place = sets.setdefault(round, {}).setdefault(id_of[client], place)
            if first_place != place and rows.clock == "round":
                raise InputError(place, client, f"client given twice in round {round}, first at {first_place}")
        no_clients: Ids = np.empty(0, dtype=np.int64)
        recorded = [
            np.array(sorted(sets[t]), dtype=np.int64) if t in sets else no_clients for t in range(max(sets) + 1)
        ]
        source = {"path": str(path.resolve()), "round_length": round_length, "clients": clients, "repeat": repeat}
        source |= {"client_column": client_column, "time_column": time_column}
        return cls(names=names, recorded=Explicit(len(names), recorded, repeat), source=source)

    @property
    def n(self) -> int:
        return self.recorded.n

    @property
    def rounds(self) -> int:
        """The number of recorded rounds."""
        return self.recorded.rounds

    def active(self, seed: int, round: int) -> Ids:
        return self.recorded.active(seed, round)

    def describe(self, rounds: int | None = None) -> Pattern:
        return self.recorded.describe(rounds)

    def __repr__(self) -> str:
        sizes = [len(self.active(0, t)) for t in range(self.rounds)]
        empty = f", {sizes.count(0)} of them empty" if 0 in sizes else ""
        return f"Trace({self.n} clients, {self.rounds} rounds{empty}, {np.mean(sizes):.3g} active per round)"

    def _repr_html_(self) -> str:
        """Active rounds of the first clients, for notebooks."""
        counts = np.bincount(np.concatenate([self.active(0, t) for t in range(self.rounds)]), minlength=self.n)
        rows = zip(self.names[:_ROWS_SHOWN], counts.tolist(), strict=False)
        cells = "".join(f"<tr><td>{html.escape(name)}</td><td>{count}</td></tr>" for name, count in rows)
        return f"<p>{self!r}</p><table><tr><th>client</th><th>active rounds</th></tr>{cells}</table>"
