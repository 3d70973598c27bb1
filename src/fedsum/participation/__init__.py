"""Schedules: the active clients of every round, and the delays that follow from them."""

from .asynchronous import Asynchronous
from .availability_records import ClientRecord
from .available_clients import COVERS, Availability
from .chosen import Cyclic, Reshuffled, Uniform
from .delays import DelayMeter, Delays, delays
from .devices import Devices, check_devices
from .distributions import LogNormal, LogUniform
from .diurnal import Diurnal
from .explicit import Explicit
from .fedscale import read_fedscale
from .fit import Fit, fit
from .flash import read_flash
from .independent import Biased, Independent, Sine
from .interval_files import has_intervals, trace_clock, write_rows
from .markov import Markov
from .periodic import Periodic
from .recorded import refuse_short
from .sampled import ORDERS, Sampled
from .schedule import Ids, Pattern, Schedule, as_ids
from .spaced import Spaced
from .trace import Trace
from .trace_files import TRACE_FILES, is_trace_file

SCHEDULES: dict[str, type[Schedule]] = {
    cls.__name__: cls
    for cls in (Uniform, Independent, Sine, Cyclic, Reshuffled, Biased, Markov, Periodic, Spaced, Diurnal, Asynchronous)
}
"""the patterns that a file can give by name and numbers"""

__all__ = [
    "COVERS",
    "ORDERS",
    "SCHEDULES",
    "TRACE_FILES",
    "Asynchronous",
    "Availability",
    "Biased",
    "ClientRecord",
    "Cyclic",
    "DelayMeter",
    "Delays",
    "Devices",
    "Diurnal",
    "Explicit",
    "Fit",
    "Ids",
    "Independent",
    "LogNormal",
    "LogUniform",
    "Markov",
    "Pattern",
    "Periodic",
    "Reshuffled",
    "Sampled",
    "Schedule",
    "Sine",
    "Spaced",
    "Trace",
    "Uniform",
    "as_ids",
    "check_devices",
    "delays",
    "fit",
    "has_intervals",
    "is_trace_file",
    "read_fedscale",
    "read_flash",
    "refuse_short",
    "trace_clock",
    "write_rows",
]
