"""Tasks: models, losses and clients' data."""

from . import models
from .client_data import ClientData, OwnData, by_client, leaf
from .curvature import Curvature, curvature
from .data import IMAGE_SETS, Images, at_hand, load
from .evaluation import ClientScores
from .interface import BaseTask
from .metric import Metric, check_better, directions_of
from .network import ClientLoss, Network, Outputs, client_loss_of, network_of
from .normalization import group_norm
from .partition import Partition
from .quadratic import Quadratic
from .sentences import TEXT_SETS, sentences_at_hand
from .task import Task
from .text import text
from .transforms import Augment, Standardize
from .vision import vision

__all__ = [
    "IMAGE_SETS",
    "TEXT_SETS",
    "Augment",
    "BaseTask",
    "ClientData",
    "ClientLoss",
    "ClientScores",
    "Curvature",
    "Images",
    "Metric",
    "Network",
    "Outputs",
    "OwnData",
    "Partition",
    "Quadratic",
    "Standardize",
    "Task",
    "at_hand",
    "by_client",
    "check_better",
    "client_loss_of",
    "curvature",
    "directions_of",
    "group_norm",
    "leaf",
    "load",
    "models",
    "network_of",
    "sentences_at_hand",
    "text",
    "vision",
]
