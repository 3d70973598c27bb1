"""fedsum trains one model with clients that come and go."""

from . import tasks, theory
from .algorithms import (
    MIFA,
    SCAFFOLD,
    Algorithm,
    FedAU,
    FedAvg,
    FedAWE,
    FedSUM,
    FedSUMB,
    FedSUMCR,
    FedVARP,
    LocalPlan,
    Round,
)
from .base.checks import InputError
from .participation import (
    Biased,
    Cyclic,
    DelayMeter,
    Delays,
    Explicit,
    Independent,
    Markov,
    Pattern,
    Reshuffled,
    Sine,
    Trace,
    Uniform,
    delays,
)
from .simulate import RoundDone, simulate
from .training.history import History
from .training.rates import InverseSqrt

__version__ = "0.1.0"

__all__ = [
    "MIFA",
    "SCAFFOLD",
    "Algorithm",
    "Biased",
    "Cyclic",
    "DelayMeter",
    "Delays",
    "Explicit",
    "FedAU",
    "FedAWE",
    "FedAvg",
    "FedSUM",
    "FedSUMB",
    "FedSUMCR",
    "FedVARP",
    "History",
    "Independent",
    "InputError",
    "InverseSqrt",
    "LocalPlan",
    "Markov",
    "Pattern",
    "Reshuffled",
    "Round",
    "RoundDone",
    "Sine",
    "Trace",
    "Uniform",
    "delays",
    "simulate",
    "tasks",
    "theory",
]
