"""Our own kernels: Triton sources, the layers made of them, and the networks that they support."""

from .networks import Steps, client_evaluation, evaluation, steps

__all__ = ["Steps", "client_evaluation", "evaluation", "steps"]
