"""What is trained."""

from .base import BaseTask
from .quadratic import Quadratic

__all__ = ["BaseTask", "Quadratic"]
