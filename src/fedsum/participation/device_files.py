"""Files of devices, with the columns `seconds_per_step`, `up` and `down`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.checks import InputError
from .trace_files import open_rows, values
from .trace_values import all_names, as_client


def read_device_columns(path: Path, fields: Sequence[str]) -> tuple[dict[str, Any], bool]:
    """The columns among `fields` that the file has, by client id; and whether it is a catalogue, without clients."""
    header, rows = open_rows(path)
    columns = [name for name in fields if name in header]
    if not columns:
        raise InputError(f"header of {path}", ",".join(header), f"at least one of the columns {', '.join(fields)}")
    catalogue = "client" not in header
    clients, numbers, places = [], [], []
    for place, row in values(path, rows, columns if catalogue else ["client", *columns]):
        if not catalogue:
            clients.append(as_client(place, row.pop(0)))
        numbers.append([_number(place, value) for value in row])
        places.append(place)
    if not numbers:
        raise InputError("devices", str(path), "at least one line after the header")
    table = np.array(numbers)
    if not catalogue:
        table = table[_order(clients, places)]
    return {name: table[:, number] for number, name in enumerate(columns)}, catalogue


def _order(clients: list[str], places: list[str]) -> NDArray[np.int64]:
    """The row of each client, in the order of ids."""
    row_of: dict[str, int] = {}
    for row, (client, place) in enumerate(zip(clients, places, strict=True)):
        if row_of.setdefault(client, row) != row:
            raise InputError(place, client, f"client given twice, first at {places[row_of[client]]}")
    return np.array([row_of[name] for name in all_names(clients, None)])


def _number(place: str, value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise InputError(place, value, "a number") from None
