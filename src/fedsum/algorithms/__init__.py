"""The FedSUM family and its baselines, one file per algorithm; `base` is their common interface."""

from .base import Algorithm, LocalPlan, Message, Round, State
from .check import check, check_once
from .fedau import FedAU
from .fedavg import FedAvg
from .fedawe import FedAWE
from .fedsum import FedSUM
from .fedsum_b import FedSUMB
from .fedsum_cr import FedSUMCR
from .fedvarp import FedVARP
from .message_sizes import Card, Traffic, card, count
from .mifa import MIFA
from .scaffold import SCAFFOLD

ALGORITHMS: dict[str, type[Algorithm]] = {
    cls.__name__: cls for cls in (FedSUM, FedSUMB, FedSUMCR, FedAvg, SCAFFOLD, MIFA, FedVARP, FedAU, FedAWE)
}

__all__ = [
    "ALGORITHMS",
    "MIFA",
    "SCAFFOLD",
    "Algorithm",
    "Card",
    "FedAU",
    "FedAWE",
    "FedAvg",
    "FedSUM",
    "FedSUMB",
    "FedSUMCR",
    "FedVARP",
    "LocalPlan",
    "Message",
    "Round",
    "State",
    "Traffic",
    "card",
    "check",
    "check_once",
    "count",
]
