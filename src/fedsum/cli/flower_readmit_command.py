"""fedsum flower readmit FOLDER CLIENT"""

from .arguments import RunsFolder
from .flower_requests import Client, Wait, request_and_wait


def flower_readmit(folder: RunsFolder, client: Client, wait: Wait = 0.0) -> None:
    """Undo an eviction: the client starts over. Applied between two rounds."""
    request_and_wait(folder, "readmit", client, wait)
