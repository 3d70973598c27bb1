"""Local work: the K gradients of each active client, by interchangeable engines."""

from .arithmetic import arithmetic
from .auto import ENGINES, Engine, choose
from .bank import StateBank
from .loop import mean_gradient

__all__ = ["ENGINES", "Engine", "StateBank", "arithmetic", "choose", "mean_gradient"]
