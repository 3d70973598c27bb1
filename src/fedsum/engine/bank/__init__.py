"""The clients' states: on the device, in host memory or in a memory-mapped file, with snapshots for checkpoints."""

from .blocks import reserve
from .snapshots import FrozenBank
from .state_bank import StateBank

__all__ = ["FrozenBank", "StateBank", "reserve"]
