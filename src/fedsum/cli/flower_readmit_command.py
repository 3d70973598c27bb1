"""fedsum flower readmit FOLDER CLIENT"""

from .arguments import DeploymentFolder
from .flower_requests import Client, Wait, request_and_wait


def flower_readmit(folder: DeploymentFolder, client: Client, wait: Wait = 0.0) -> None:
    """Undo an eviction: the client starts over. The server applies this between two rounds, or when it starts."""
    request_and_wait(folder, "readmit", client, wait)
