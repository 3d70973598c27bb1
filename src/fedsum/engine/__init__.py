"""Local work: the K gradients of each active client, by interchangeable engines."""

from .arithmetic import arithmetic
from .bank.state_bank import StateBank
from .choose import ENGINES, Engine, choose_engine
from .kernels.networks import evaluation
from .loop import mean_gradient

__all__ = ["ENGINES", "Engine", "StateBank", "arithmetic", "choose_engine", "evaluation", "mean_gradient"]
