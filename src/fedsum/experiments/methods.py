"""The experiments `methods` and `methods-rates`: FedAvg with the true participation probabilities."""

from ..algorithms import KnownFedAvg
from ..participation import Biased


def known(clients: int = 100, group: int = 11) -> KnownFedAvg:
    """KnownFedAvg for the clients of a `Biased` schedule."""
    return KnownFedAvg(p=Biased(clients, group=group).probability().tolist())
