"""Sums of many float32 uplinks, without drift: they are added in float64, on both sides."""

from collections.abc import Mapping

import torch
from torch import Tensor


def widened(vectors: Mapping[str, Tensor], *, but: str = "") -> dict[str, Tensor]:
    """The vectors in float64, except the one named `but`. Scalars stay as they are."""
    return {name: value.double() if value.dim() and name != but else value for name, value in vectors.items()}


def narrowed(vectors: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """The vectors in the dtype of the training. Scalars stay as they are."""
    return {name: value.to(dtype) if value.dim() else value for name, value in vectors.items()}
