"""fedsum trace convert FILE"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..base.checks import InputError, real
from ..participation import (
    Availability,
    ClientRecord,
    is_trace_file,
    read_fedscale,
    read_flash,
    trace_clock,
    write_rows,
)
from .arguments import Cover, Offset
from .console import Json, err, out, print_json, print_path
from .schedule_argument import read_trace

_INTERVALS, _ROUNDS = ("client", "start", "end"), ("round", "client")


class Format(StrEnum):
    """The formats of availability traces besides fedsum's own."""

    fedscale = "fedscale"
    flash = "flash"


class Unknown(StrEnum):
    """How a client's time outside its own log is filled."""

    repeat = "repeat"
    absent = "absent"


def trace_convert(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A trace, intervals, or a trace of FedScale or FLASH.")],
    target: Annotated[Path, typer.Option("--out", help="File to write: .csv, .jsonl (both also .gz) or .parquet.")],
    source: Annotated[
        Format | None,
        typer.Option(
            "--from",
            help="Format of FILE; default: flash for .json, fedscale for an unknown ending.",
        ),
    ] = None,
    round_length: Annotated[
        float | None, typer.Option(help="Length of a round, in the unit of the times; for a trace of rounds, 1.")
    ] = None,
    client_column: Annotated[str | None, typer.Option(help="Name of FILE's column of clients.")] = None,
    time_column: Annotated[str | None, typer.Option(help="Trace: name of FILE's column of times.")] = None,
    offset: Offset = None,
    cover: Cover = None,
    length: Annotated[
        float | None, typer.Option(help="FedScale, FLASH: seconds to write; default: until the last log ends.")
    ] = None,
    unknown: Annotated[
        Unknown,
        typer.Option(help="FedScale, FLASH: outside the time of its log, a client repeats the log or is absent."),
    ] = Unknown.repeat,
    as_json: Json = False,
) -> None:
    """Convert a trace to intervals (client,start,end), or intervals to a trace of rounds (round,client).

    FedScale's client_behave_trace is a pickle, which is read without running any code in it. FLASH's state_traces.json
    contains events: a phone is available while it is idle, charging and on Wi-Fi.
    """
    if source is None and not is_trace_file(file):
        source = Format.flash if file.suffix.lower() == ".json" else Format.fedscale
    with err.status(f"reading {file}"):
        if source is None:
            given = {"round_length": round_length, "offset": offset, "cover": cover}
            columns, rows = _own(file, given | {"client_column": client_column, "time_column": time_column})
        else:
            for name, column in (("client-column", client_column), ("time-column", time_column)):
                if column is not None:
                    raise InputError(name, column, f"not for the format {source.value}, whose names are fixed")
            for name, value in (("round-length", round_length), ("offset", offset), ("cover", cover)):
                if value is not None:
                    accepted = "FILE is converted to intervals; use this option when you convert those to rounds"
                    raise InputError(name, value, accepted)
            columns, rows = _INTERVALS, _logged(file, source, length, repeat=unknown is Unknown.repeat)
    if not rows:
        raise InputError("trace", str(file), "no client in it is ever available")
    with err.status(f"writing {target}"):
        write_rows(target, columns, rows)
    clients = len({row[columns.index("client")] for row in rows})
    if as_json:
        print_json({"file": str(target), "columns": list(columns), "clients": clients, "rows": len(rows)})
        return
    print_path("written", target)
    out.print(f"{len(rows):,} rows of {','.join(columns)}, {clients:,} clients", highlight=False)


def _own(file: Path, given: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Intervals of a trace, or the rounds of intervals."""
    given = {name: value for name, value in given.items() if value is not None}
    # A trace of rounds has no times. The length of a round is then that of the written times.
    counted = trace_clock(file) == "round"
    round_length = given.pop("round_length", 1.0) if counted else given.get("round_length", 1.0)
    recorded = read_trace(str(file), given)
    if isinstance(recorded, Availability):
        active = ((t, recorded.names[i]) for t in range(recorded.rounds) for i in recorded.active(0, t).tolist())
        return _ROUNDS, list(active)
    available = Availability.of(recorded)
    clients, starts, ends = available.intervals(round_length)
    names = [available.names[i] for i in clients.tolist()]
    return _INTERVALS, list(zip(names, starts.tolist(), ends.tolist(), strict=True))


def _logged(file: Path, source: Format, length: float | None, *, repeat: bool) -> list[tuple[Any, ...]]:
    """The intervals of clients' logs."""
    if source is Format.flash:
        records, never_known = read_flash(file)
        if never_known:
            names = ", ".join(never_known[:5]) + (", ..." if len(never_known) > 5 else "")
            note = f"note: left out, because their availability is never known: {len(never_known)} phones ({names})"
            err.print(note, soft_wrap=True, highlight=False, markup=False)
    else:
        records = read_fedscale(file)
    return _intervals(records, length, repeat=repeat)


def _intervals(records: list[ClientRecord], length: float | None, *, repeat: bool) -> list[tuple[Any, ...]]:
    if not records:
        return []
    begin = min(record.start for record in records)
    end = max(record.end for record in records) if length is None else begin + real("length", length, above=0)
    return [(record.client, *interval) for record in records for interval in record.between(begin, end, repeat=repeat)]
