"""Local work: the K gradients of each active client, computed by interchangeable engines."""

from .arithmetic import arithmetic
from .bank import FrozenBank, StateBank
from .cache import bound_task
from .choose import ENGINES, Engine, choose_engine
from .dropout import keyed_noise
from .kernels import client_evaluation, evaluation
from .loop import client_work, mean_gradient
from .regularised import regularised
from .step_counts import StepCounts

__all__ = [
    "ENGINES",
    "Engine",
    "FrozenBank",
    "StateBank",
    "StepCounts",
    "arithmetic",
    "bound_task",
    "choose_engine",
    "client_evaluation",
    "client_work",
    "evaluation",
    "keyed_noise",
    "mean_gradient",
    "regularised",
]
