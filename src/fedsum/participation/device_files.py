"""Files of devices, with the columns `seconds_per_step`, `up` and `down`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.checks import InputError
from .trace_files import open_rows, values
from .trace_values import all_names, as_client


def read_device_columns(
    path: Path, fields: Sequence[str], order: Sequence[str] | None
) -> tuple[dict[str, Any], tuple[str, ...] | None]:
    """The columns among `fields` that the file has, by client id; and the clients' names, None for a catalogue.

    Ids follow the sorted names, or `order`.
    """
    header, rows = open_rows(path)
    columns = [name for name in fields if name in header]
    if not columns:
        raise InputError(f"header of {path}", ",".join(header), f"at least one of the columns {', '.join(fields)}")
    catalogue = "client" not in header
    if catalogue and order is not None:
        raise InputError("clients", list(order), f"leave it out: {path} has no column client")
    clients, numbers, places = [], [], []
    for place, row in values(path, rows, columns if catalogue else ["client", *columns]):
        if not catalogue:
            clients.append(as_client(place, row.pop(0)))
        numbers.append([_number(place, value) for value in row])
        places.append(place)
    if not numbers:
        raise InputError("devices", str(path), "at least one line after the header")
    table, names = np.array(numbers), None
    if not catalogue:
        names = all_names(clients, order)
        table = table[_rows(names, clients, places)]
    return {name: table[:, number] for number, name in enumerate(columns)}, names


def _rows(names: Sequence[str], clients: list[str], places: list[str]) -> NDArray[np.int64]:
    """The row of each client, in the order of ids."""
    row_of: dict[str, int] = {}
    for row, (client, place) in enumerate(zip(clients, places, strict=True)):
        if row_of.setdefault(client, row) != row:
            raise InputError(place, client, f"client given twice, first at {places[row_of[client]]}")
    given = set(names)
    for name in (*names, *row_of):
        if name not in row_of:
            raise InputError("clients", name, "clients of the file")
        if name not in given:
            raise InputError(places[row_of[name]], name, f"not among the {len(names)} clients given")
    return np.array([row_of[name] for name in names])


def _number(place: str, value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise InputError(place, value, "a number") from None
