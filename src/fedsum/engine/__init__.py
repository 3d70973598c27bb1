"""Local work: the K gradients of each active client."""

from .bank import StateBank
from .loop import LoopEngine, mean_gradient

__all__ = ["LoopEngine", "StateBank", "mean_gradient"]
