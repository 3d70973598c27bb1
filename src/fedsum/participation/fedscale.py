"""FedScale's availability trace, `client_behave_trace`: a pickle, read without running any code in it.

Lai et al., "FedScale: Benchmarking Model and System Performance of Federated Learning at Scale", ICML 2022. The file is
a dict from the client to {"active": [...], "inactive": [...], "finish_time": ..., "duration": ..., "model": ...}. The
client is available from active[i] to inactive[i], in seconds, and the trace starts over at `finish_time`.
"""

import math
import pickle
from pathlib import Path
from typing import Any, NoReturn

from ..base.checks import InputError
from .availability_records import ClientRecord

_FORMAT = "a dict of clients, each with the lists active and inactive, and finish_time"


def read_fedscale(path: Path) -> list[ClientRecord]:
    """The records of all clients, in the order of the file."""
    content = _unpickled(path)
    if not isinstance(content, dict) or not content:
        raise InputError("trace", str(path), _FORMAT)
    return [_record(f"{path} client {client!r}", client, trace) for client, trace in content.items()]


class _Restricted(pickle.Unpickler):
    """Loads dicts, lists, numbers and strings. Everything else in a pickle is made by a class or function by name."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}; only dicts, lists, numbers and strings are read")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to other files")


def _unpickled(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return _Restricted(file).load()
    except OSError as error:
        raise InputError("trace", str(path), f"a readable file ({error.strerror})") from None
    except Exception as error:  # a damaged pickle raises errors of any kind
        raise InputError("trace", str(path), f"a pickle of FedScale's trace ({error})") from None


def _record(place: str, client: Any, trace: Any) -> ClientRecord:
    if not isinstance(trace, dict) or not isinstance(client, int | str):
        raise InputError(place, trace, _FORMAT)
    active, inactive, finish = (trace.get(name) for name in ("active", "inactive", "finish_time"))
    if not isinstance(active, list) or not isinstance(inactive, list) or len(active) != len(inactive):
        raise InputError(place, trace, "two lists of the same length, active and inactive")
    end = _number(f"{place} finish_time", finish)
    if end <= 0:
        raise InputError(f"{place} finish_time", finish, "a number of seconds greater than 0")
    starts, ends = ([_number(place, time) for time in times] for times in (active, inactive))
    # An interval that ends before it starts is dropped by `between`: in FedScale, too, it is never available.
    intervals = [(max(0.0, left), min(end, right)) for left, right in zip(starts, ends, strict=True)]
    return ClientRecord(str(client), 0.0, end, intervals)


def _number(place: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(place, value, "a finite number of seconds")
    return float(value)
