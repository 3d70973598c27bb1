"""Standardization and augmentation of images, on their device and for whole cohorts at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ..base.checks import InputError, integer, real


@dataclass(frozen=True)
class Standardize:
    """(x / 255 - mean) / std per channel, for bytes [..., C, H, W].

    >>> Standardize((0.5,), (0.25,))(torch.tensor([[[255, 0]]], dtype=torch.uint8), torch.float32).round()
    tensor([[[ 2., -2.]]])
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        for std in self.std:
            real("std", std, above=0)
        if len(self.mean) != len(self.std):
            raise InputError("mean", self.mean, f"{len(self.std)} numbers, one per channel, as std")

    def __call__(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        scale = _channels([1 / (255 * std) for std in self.std], x.device, dtype)
        shift = _channels([-mean / std for mean, std in zip(self.mean, self.std, strict=True)], x.device, dtype)
        return torch.addcmul(shift, x.to(dtype), scale)


@dataclass(frozen=True)
class Augment:
    """Random crops of the image padded by `crop` pixels on every side, then random mirroring.

    Random numbers are drawn on the host (`draw`, keyed) and applied on the device (`apply`), so that every engine
    trains on the same images.

    Args:
      crop: pixels of padding on every side.
      flip: mirror half of the images.
      per_batch: draw one crop and one flip per batch instead of one per image.
      fill: colour of the padding, one byte per channel; default: black.
    """

    crop: int = 4
    flip: bool = False
    per_batch: bool = False
    fill: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        integer("crop", self.crop, low=0)
        for byte in self.fill or ():
            integer("fill", byte, low=0, high=255)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Codes (dy, dx, mirrored) for `shape` images, [*shape, 3]. The last dimension of `shape` is the batch."""
        drawn = (*shape[:-1], 1) if self.per_batch else shape
        offsets = rng.integers(0, 2 * self.crop + 1, (*drawn, 2))
        mirrored = rng.integers(0, 1 + self.flip, (*drawn, 1))
        codes = np.concatenate([offsets, mirrored], axis=-1)
        return np.repeat(codes, shape[-1], axis=-2) if self.per_batch else codes

    def apply(self, images: Tensor, codes: Tensor) -> Tensor:
        """The images [..., C, H, W] cropped and mirrored by their codes [..., 3]."""
        height, width = images.shape[-2:]
        if self.per_batch:
            codes = codes[..., :1, :]  # all codes of a batch are equal: one index serves the whole batch
        dy, dx, mirrored = codes[..., None, None].unbind(-3)
        y = torch.arange(height, device=images.device)[:, None]
        x = torch.arange(width, device=images.device)
        x = torch.where(mirrored > 0, width - 1 - x, x)
        # The index of each pixel in the flattened padded image.
        source = ((y + dy) * (width + 2 * self.crop) + x + dx).flatten(-2)[..., None, :]
        padded = self._padded(images).flatten(-2)
        return padded.gather(-1, source.expand(*images.shape[:-2], -1)).reshape(images.shape)

    def _padded(self, images: Tensor) -> Tensor:
        border = [self.crop] * 4
        padded = F.pad(images, border)
        if self.fill is None:
            return padded
        inside = F.pad(torch.ones_like(images[..., 0, :, :], dtype=torch.bool), border)[..., None, :, :]
        return torch.where(inside, padded, _channels(self.fill, images.device, images.dtype))


def _channels(values: Sequence[float], device: torch.device, dtype: torch.dtype) -> Tensor:
    # Filled on the device: a copy from the host cannot be captured in a CUDA graph.
    return torch.cat([torch.full((1, 1, 1), value, device=device, dtype=dtype) for value in values])
