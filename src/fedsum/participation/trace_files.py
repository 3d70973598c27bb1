"""The files of recorded traces: CSV, JSON lines and Parquet, the first two also compressed by gzip."""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..base.checks import InputError, nearest

TRACE_FILES = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".parquet", ".pq")
"""how the names of trace files end"""
_READABLE = f"an existing file ending in {', '.join(TRACE_FILES)}"


def is_trace_file(path: str | Path) -> bool:
    return str(path).lower().endswith(TRACE_FILES)


Rows = Iterator[tuple[str, dict[str, Any]]]
"""per row, its place in the file and its values by column"""


class TraceRows:
    """The rows of a file as (place in the file, round or time, client).

    `clock` is "round" or "time". The columns are named `round` or `time`, and `client`, unless the caller names others.
    """

    def __init__(self, path: Path, client_column: str | None, time_column: str | None) -> None:
        header, rows = open_rows(path)
        clocks = [time_column] if time_column else [name for name in ("round", "time") if name in header]
        client = client_column or "client"
        refuse_unknown(path, header, client_column=client_column, time_column=time_column)
        if client not in header or len(clocks) != 1:
            accepted = (
                "the columns round,client or time,client are needed; name others with client_column and time_column"
                " (--client-column, --time-column)"
            )
            raise InputError(f"header of {path}", ",".join(header), accepted)
        self.clock = "time" if time_column else clocks[0]
        self._rows = values(path, rows, (clocks[0], client))

    def __iter__(self) -> Iterator[tuple[str, Any, Any]]:
        for place, (clock, client) in self._rows:
            yield place, clock, client


def open_rows(path: Path) -> tuple[list[str], Rows]:
    """The column names and the rows of a file."""
    if not path.is_file() or not is_trace_file(path):
        raise InputError("trace", str(path), _READABLE)
    reader = {"CSV": _csv_rows, "JSONL": _json_rows}.get(_kind(path), _parquet_rows)
    return reader(path)


def refuse_unknown(path: Path, header: Sequence[str], **columns: str | None) -> None:
    """Refuses an option that names a column that the file does not have."""
    for option, name in columns.items():
        if name is not None and name not in header:
            raise InputError(option, name, f"a column of {path}; {nearest(name, header)}")


def values(path: Path, rows: Rows, columns: Sequence[str]) -> Iterator[tuple[str, list[Any]]]:
    """Per row, its place, with the path, and its values in these columns."""
    for place, row in rows:
        if any(column not in row for column in columns):
            needed = f"{', '.join(columns[:-1])} and {columns[-1]}"
            shown = ",".join(map(str, row.values()))
            raise InputError(f"{path} {place}", shown, f"needs the columns {needed}")
        yield f"{path} {place}", [row[column] for column in columns]


def _kind(path: Path) -> str:
    return path.name.lower().removesuffix(".gz").rpartition(".")[2].upper()


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix.lower() == ".gz" else content
        return content.decode("utf-8-sig")
    except (UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
        raise InputError("trace", str(path), f"a readable UTF-8 {_kind(path)} file ({error})") from None


def _csv_rows(path: Path) -> tuple[list[str], Rows]:
    lines = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    try:
        header = [name.strip() for name in next(lines, [])]
    except csv.Error as error:
        raise InputError("trace", str(path), f"a readable UTF-8 CSV file ({error})") from None

    def rows() -> Rows:
        while True:
            place = f"line {lines.line_num + 1}"
            try:
                row = next(lines, None)
            except csv.Error as error:
                raise InputError(f"{path} {place}", "?", f"not a CSV line ({error})") from None
            if row is None:
                return
            if row:
                yield place, {name: cell.strip() for name, cell in zip(header, row, strict=False)}

    return header, rows()


def _json_rows(path: Path) -> tuple[list[str], Rows]:
    lines = [(number, line) for number, line in enumerate(_text(path).splitlines(), start=1) if line.strip()]

    def rows() -> Rows:
        for number, line in lines:
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{path} line {number}", line, f"not a line of JSON ({error})") from None
            if not isinstance(row, dict):
                raise InputError(f"{path} line {number}", line, 'an object, such as {"time": 0, "client": "a"}')
            yield f"line {number}", row

    header: dict[str, None] = {}
    for _, row in rows():
        header |= dict.fromkeys(row)
    return list(header), rows()


def _parquet_rows(path: Path) -> tuple[list[str], Rows]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError("trace", str(path), f"a readable Parquet file ({str(error).splitlines()[0]})") from None

    def rows() -> Rows:
        columns = {name: table.column(name).to_pylist() for name in dict.fromkeys(table.column_names)}
        for number in range(table.num_rows):
            yield f"row {number + 1}", {name: values[number] for name, values in columns.items()}

    return list(table.column_names), rows()
