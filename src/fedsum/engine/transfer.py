"""From the host to the device without waiting for it."""

import torch
from torch import Tensor


def on_device(values: Tensor, device: torch.device) -> Tensor:
    """A copy there. To CUDA through pinned memory: a plain copy would wait until the device is done with all before."""
    if device.type != "cuda" or values.device == device:
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)
