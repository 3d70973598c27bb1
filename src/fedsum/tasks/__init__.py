"""Tasks: models, losses and clients' data."""

from .client_data import ClientData
from .data import IMAGE_SETS, Images, at_hand, load
from .interface import BaseTask
from .metric import Metric, check_better, directions_of
from .network import Network, network_of
from .partition import Partition
from .quadratic import Quadratic
from .task import Task
from .transforms import Augment, Standardize
from .vision import vision

__all__ = [
    "IMAGE_SETS",
    "Augment",
    "BaseTask",
    "ClientData",
    "Images",
    "Metric",
    "Network",
    "Partition",
    "Quadratic",
    "Standardize",
    "Task",
    "at_hand",
    "check_better",
    "directions_of",
    "load",
    "network_of",
    "vision",
]
