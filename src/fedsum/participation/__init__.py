"""Schedules: the active clients of every round, and the delays that follow from them."""

from .chosen import Cyclic, Reshuffled, Uniform
from .delays import DelayMeter, Delays, delays
from .explicit import Explicit
from .independent import Biased, Independent, Sine
from .markov import Markov
from .periodic import Periodic
from .schedule import Ids, Pattern, Schedule, as_ids
from .trace import Trace, refuse_short
from .trace_files import TRACE_FILES, is_trace_file

SCHEDULES: dict[str, type[Schedule]] = {
    cls.__name__: cls for cls in (Uniform, Independent, Sine, Cyclic, Reshuffled, Biased, Markov, Periodic)
}
"""the patterns that a file can give by name and numbers"""

__all__ = [
    "SCHEDULES",
    "TRACE_FILES",
    "Biased",
    "Cyclic",
    "DelayMeter",
    "Delays",
    "Explicit",
    "Ids",
    "Independent",
    "Markov",
    "Pattern",
    "Periodic",
    "Reshuffled",
    "Schedule",
    "Sine",
    "Trace",
    "Uniform",
    "as_ids",
    "delays",
    "is_trace_file",
    "refuse_short",
]
