"""Files of intervals, with the columns `client,start,end`."""

import csv
import gzip
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.checks import InputError
from ..base.files import written_whole
from .trace_files import TRACE_FILES, is_trace_file, open_rows, refuse_unknown, values
from .trace_values import TimeColumn, as_client, in_seconds


@dataclass(frozen=True)
class Intervals:
    """The rows of a file, one entry per interval."""

    places: list[str]
    """where in the file each interval is, for error messages"""
    clients: list[str]
    starts: list[float]
    ends: list[float]


def has_intervals(path: Path, start_column: str | None = None, end_column: str | None = None) -> bool:
    """Whether the file has intervals, by its column names; otherwise it is a trace of rounds or instants."""
    return start_column is not None or end_column is not None or trace_clock(path) == "interval"


def trace_clock(path: Path) -> str | None:
    """What a row of the file has, by its column names: "interval", "round" or "time"; None if none of these."""
    header, _ = open_rows(path)
    if {"start", "end"} <= set(header):
        return "interval"
    return next((name for name in ("round", "time") if name in header), None)


def read_intervals(
    path: Path, client_column: str | None, start_column: str | None, end_column: str | None
) -> Intervals:
    """Reads and checks every row. Times in milliseconds since 1970 become seconds, with a warning."""
    header, rows = open_rows(path)
    refuse_unknown(path, header, client_column=client_column, start_column=start_column, end_column=end_column)
    columns = (client_column or "client", start_column or "start", end_column or "end")
    if any(column not in header for column in columns):
        accepted = "the columns client,start,end are needed; name others with client_column, start_column, end_column"
        raise InputError(f"header of {path}", ",".join(header), accepted)
    found, clock = Intervals([], [], [], []), TimeColumn()
    for place, (client, start, end) in values(path, rows, columns):
        found.places.append(place)
        found.clients.append(as_client(place, client))
        found.starts.append(clock.read(place, start))
        found.ends.append(clock.read(place, end))
        if found.ends[-1] < found.starts[-1]:
            raise InputError(place, end, f"an end, not before its start {start}")
    if not found.places:
        raise InputError("trace", str(path), "at least one line after the header")
    times = in_seconds(path, found.starts + found.ends)
    return Intervals(found.places, found.clients, times[: len(found.places)], times[len(found.places) :])


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Writes a table as CSV, JSON lines or Parquet, by the file's name; the first two also compressed (.gz)."""
    name = path.name.lower()
    if not is_trace_file(path):
        raise InputError("out", str(path), f"a file name ending in {', '.join(TRACE_FILES)}")
    if name.endswith((".parquet", ".pq")):
        import pyarrow as pa
        import pyarrow.parquet as pq

        by_column = zip(*rows, strict=True)
        with written_whole(path) as part:
            pq.write_table(
                pa.table({column: list(items) for column, items in zip(columns, by_column, strict=True)}), part
            )
        return
    text = io.StringIO(newline="")
    if ".csv" in name[-7:]:
        csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    else:
        text.writelines(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)
    content = text.getvalue().encode()
    with written_whole(path) as part:
        part.write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
