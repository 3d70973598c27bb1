"""fedsum flower evict FOLDER CLIENT"""

from .arguments import DeploymentFolder
from .flower_requests import Client, Wait, request_and_wait


def flower_evict(folder: DeploymentFolder, client: Client, wait: Wait = 0.0) -> None:
    """Exclude a client. The server applies the request between two rounds, or when it starts.

    The server subtracts the client's contributions from its sums. If it does not know them, it begins a new epoch
    instead, in which all client states are reset.
    """
    request_and_wait(folder, "evict", client, wait)
