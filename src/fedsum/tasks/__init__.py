"""Tasks: models, losses and clients' data."""

from .curvature import Curvature, curvature
from .data import IMAGE_SETS, Images, at_hand, load
from .interface import BaseTask
from .network import Network, network_of
from .partition import Partition
from .quadratic import Quadratic
from .task import ClientData, Task
from .transforms import Augment, Standardize
from .vision import vision

__all__ = [
    "IMAGE_SETS",
    "Augment",
    "BaseTask",
    "ClientData",
    "Curvature",
    "Images",
    "Network",
    "Partition",
    "Quadratic",
    "Standardize",
    "Task",
    "at_hand",
    "curvature",
    "load",
    "network_of",
    "vision",
]
