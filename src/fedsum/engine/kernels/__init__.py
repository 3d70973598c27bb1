"""Our own kernels: Triton sources, the layers made of them, and the networks that they support."""

from .networks import Steps, evaluation, steps

__all__ = ["Steps", "evaluation", "steps"]
