"""What is trained."""

from .interface import BaseTask
from .network import Network, network_of
from .partition import Partition
from .quadratic import Quadratic
from .task import ClientData, Task
from .transforms import Augment, Standardize
from .vision import vision

__all__ = [
    "Augment",
    "BaseTask",
    "ClientData",
    "Network",
    "Partition",
    "Quadratic",
    "Standardize",
    "Task",
    "network_of",
    "vision",
]
