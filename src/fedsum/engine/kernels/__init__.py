"""Kernels of our own: Triton sources, the layers made of them, and the networks that they fit."""

from .networks import Steps, evaluation, steps

__all__ = ["Steps", "evaluation", "steps"]
