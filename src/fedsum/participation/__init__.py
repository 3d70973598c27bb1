"""Who takes part when, and what that does to the delays."""

from .chosen import Cyclic, Reshuffled, Uniform
from .delays import DelayMeter, Delays, delays
from .explicit import Explicit
from .independent import Biased, Independent, Sine
from .markov import Markov
from .schedule import Ids, Pattern, Schedule, as_ids
from .trace import Trace

SCHEDULES: dict[str, type[Schedule]] = {
    cls.__name__: cls for cls in (Uniform, Independent, Sine, Cyclic, Reshuffled, Biased, Markov)
}
"""the patterns that a name and numbers describe"""

__all__ = [
    "SCHEDULES",
    "Biased",
    "Cyclic",
    "DelayMeter",
    "Delays",
    "Explicit",
    "Ids",
    "Independent",
    "Markov",
    "Pattern",
    "Reshuffled",
    "Schedule",
    "Sine",
    "Trace",
    "Uniform",
    "as_ids",
    "delays",
]
