"""The clients' states: on the device, in host memory or in a mapped file, with snapshots for checkpoints."""

from .snapshots import FrozenBank
from .state_bank import StateBank

__all__ = ["FrozenBank", "StateBank"]
