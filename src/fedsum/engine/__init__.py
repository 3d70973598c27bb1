"""Local work: the K gradients of each active client, by interchangeable engines."""

from .arithmetic import arithmetic
from .auto import ENGINES, Engine, choose
from .bank import StateBank
from .fused import evaluation
from .loop import mean_gradient

__all__ = ["ENGINES", "Engine", "StateBank", "arithmetic", "choose", "evaluation", "mean_gradient"]
